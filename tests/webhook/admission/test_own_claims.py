"""A pod's own claims are judged together with the webhook's claims."""

import msgspec
import pytest

from dra import wire
from dra.objects import ResourceClaim
from dra.stock.stock import Stock
from tests.webhook.admission.pods_with_claims import (
    BY_TEMPLATE,
    TOO_MANY,
    bringing,
    given,
    of_devices,
    template_of,
    with_template,
)
from tests.webhook.admission.reviews import (
    CLASS,
    ENFORCE,
    NODE,
    SLICE,
    answer,
    applied,
    gpu_pod,
    mutated,
    review,
    state,
    translated,
    untouched,
    validated,
)
from webhook.admission import review as admission


def holding(count, **status):
    """Return a stock with a claim `c` for `count` devices."""
    stored = {"metadata": {"name": "c", "namespace": "ns", "uid": "1"}, "spec": of_devices(count), "status": status}
    return Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE], claims=[wire.convert(stored, ResourceClaim)])


BY_NAME = {"resourceClaimName": "c"}


@pytest.mark.parametrize(
    ("item", "world"),
    [
        (bringing(BY_TEMPLATE), with_template(16)),
        (bringing(BY_NAME), state(stock=holding(16))),
        (bringing(BY_TEMPLATE, BY_TEMPLATE), with_template(3)),
        (bringing(BY_TEMPLATE, limits={"nvidia.com/gpu": "3"}), with_template(3)),
    ],
    ids=["made from a template", "written by hand", "two that are too much together", "beside what we gave it"],
)
def test_own_and_translated_claims_are_judged_together(item, world):
    outcome = given(item, world)
    assert not answer(outcome)["allowed"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    after = applied(item, admission.decide_review("mutate", review(item), msgspec.structs.replace(world, stock=None)))
    assert answer(outcome)["status"] == answer(validated(after, world))["status"]


@pytest.mark.parametrize(
    ("item", "world"),
    [
        (bringing(BY_TEMPLATE), with_template(2)),
        (bringing(BY_NAME), state(stock=holding(2))),
        (bringing(BY_NAME), state(stock=holding(16, allocation={"devices": {"results": []}}))),
        (bringing(BY_TEMPLATE, labels={"drawbridge.dev/skip": "true"}), with_template(16)),
        (bringing(BY_TEMPLATE), with_template(16, mode="off")),
        (bringing(BY_TEMPLATE), msgspec.structs.replace(with_template(16), stock=None)),
    ],
    ids=["fits", "fits by name", "has its devices", "passes by", "namespace is off", "nothing is known"],
)
def test_a_pod_with_feasible_own_claims_is_untouched(item, world):
    assert untouched(given(item, world))


def test_a_pod_with_a_missing_claim_is_warned_and_recorded():
    outcome = given(bringing(BY_NAME), ENFORCE)
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == ["ResourceClaim c does not exist yet: the pod waits until it does"]
    assert answer(outcome)["auditAnnotations"] == {"outcome": "warned", "mode": "enforce"}
    assert outcome.record.outcome == "warned"
    assert outcome.record.problems


def test_own_claims_are_not_refused_in_warn_and_observe_mode():
    warned = given(bringing(BY_TEMPLATE), with_template(16, mode="warn"))
    assert answer(warned)["allowed"]
    assert answer(warned)["warnings"][0].startswith("drawbridge would refuse this Pod in mode enforce: ")
    watched = given(bringing(BY_TEMPLATE), with_template(16, mode="observe"))
    assert answer(watched)["allowed"]
    assert "warnings" not in answer(watched)
    assert [outcome.record.outcome for outcome in (warned, watched)] == ["would refuse", "would refuse"]
    assert watched.record.problems


def test_observe_mode_records_what_enforce_would_do():
    item = bringing(BY_TEMPLATE, limits={"nvidia.com/gpu": "3"})
    outcome = given(item, with_template(3, mode="observe"))
    assert untouched_but_audited(outcome)
    assert outcome.record.outcome == "would refuse"


def untouched_but_audited(outcome):
    return answer(outcome).keys() == {"uid", "allowed", "auditAnnotations"} and answer(outcome)["allowed"]


@pytest.mark.parametrize("odd", [None, 7, "x", {"a": 1}, [7, None, {"name": 7}, {"resourceClaimName": ["x"]}]])
def test_entries_of_any_shape_are_answered(odd):
    item = gpu_pod(limits={})
    item["spec"]["resourceClaims"] = odd
    assert answer(given(item))["allowed"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "drawbridge-0123456789abcdef0123456789abcdef",
            "is not created for a copy of a translated pod: use its original",
        ),
        ("spec", "does not exist yet: the pod waits"),
        ("own", "does not exist yet: the pod waits"),
    ],
)
def test_an_entry_resembling_ours_counts_by_its_reference(name, says):
    after, _ = mutated(gpu_pod(limits={"nvidia.com/gpu": "3"}))
    after["spec"]["resourceClaims"].append({"name": "drawbridge-more", "resourceClaimTemplateName": name})
    assert f"ResourceClaimTemplate {name} {says}" in answer(given(after))["warnings"][0]
    known = state(templates={("ns", name): template_of(3)})
    assert not answer(given(after, known))["allowed"]


def test_a_translated_pod_copied_to_another_namespace_is_warned():
    after, outcome = mutated(gpu_pod())
    copy = admission.decide_review("mutate", review(after, namespace="elsewhere"), ENFORCE)
    [name] = outcome.record.templates
    warning, removed = answer(copy)["warnings"]
    assert warning == (
        f"ResourceClaimTemplate {name} is not created for a copy of a translated pod: "
        "use its original manifest, or replace the claims with the requests in drawbridge.dev/original"
    )
    assert "not written by drawbridge for this pod, and removed" in removed
    assert untouched(given(after)), "the same pod again"


def test_a_forged_signature_is_ignored_and_removed():
    after = translated(TOO_MANY)
    (entry,) = after["spec"]["resourceClaims"]
    notes = after["metadata"]["annotations"]
    notes["drawbridge.dev/templates"] = notes["drawbridge.dev/templates"].replace('"count":16', '"count":1')
    stored = state(templates={("ns", entry["resourceClaimTemplateName"]): template_of(16)})
    assert not answer(given(after, stored))["allowed"]
    cleaned = translated(after)
    assert "drawbridge.dev/templates" not in cleaned["metadata"].get("annotations", {})
