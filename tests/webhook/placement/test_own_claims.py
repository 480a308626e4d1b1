"""Claims of a pod's own are judged together with the claims into which the webhook translates its requests."""

import msgspec
import pytest

from dra import wire
from dra.objects import ResourceClaim
from dra.stock.stock import Stock
from tests.webhook.admission.pods_with_claims import (
    BY_TEMPLATE,
    TOO_MANY,
    claim_spec_for,
    pod_with_claims,
    review_outcome,
    state_with_template,
    template_of,
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


def stock_with_claim(count, **status):
    """Return a stock (the objects that the allocator knows) with a claim `c` for `count` devices."""
    stored = {"metadata": {"name": "c", "namespace": "ns", "uid": "1"}, "spec": claim_spec_for(count), "status": status}
    return Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE], claims=[wire.convert(stored, ResourceClaim)])


BY_NAME = {"resourceClaimName": "c"}


IMPOSSIBLE = {
    "a claim of a template": (pod_with_claims(BY_TEMPLATE), state_with_template(16)),
    "an existing claim": (pod_with_claims(BY_NAME), state(stock=stock_with_claim(16))),
    "two claims that need too much together": (pod_with_claims(BY_TEMPLATE, BY_TEMPLATE), state_with_template(3)),
    "a translated request": (pod_with_claims(BY_TEMPLATE, limits={"nvidia.com/gpu": "3"}), state_with_template(3)),
}


@pytest.mark.parametrize(("item", "world"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_own_claims_are_refused_with_the_message_of_validation(item, world):
    outcome = review_outcome(item, world)
    assert not answer(outcome)["allowed"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    translated_pod = applied(
        item, admission.decide_review("mutate", review(item), msgspec.structs.replace(world, stock=None))
    )
    assert answer(outcome)["status"] == answer(validated(translated_pod, world))["status"]


SKIPPED = {"drawbridge.dev/skip": "true"}
NOT_REFUSED = {
    "a claim that fits": (pod_with_claims(BY_TEMPLATE), state_with_template(2)),
    "an existing claim that fits": (pod_with_claims(BY_NAME), state(stock=stock_with_claim(2))),
    "an allocated claim": (pod_with_claims(BY_NAME), state(stock=stock_with_claim(16, allocation={"devices": {}}))),
    "a skipped pod": (pod_with_claims(BY_TEMPLATE, labels=SKIPPED), state_with_template(16)),
    "mode off": (pod_with_claims(BY_TEMPLATE), state_with_template(16, mode="off")),
    "unknown devices": (pod_with_claims(BY_TEMPLATE), msgspec.structs.replace(state_with_template(16), stock=None)),
}


@pytest.mark.parametrize(("item", "world"), NOT_REFUSED.values(), ids=NOT_REFUSED)
def test_a_pod_whose_own_claims_need_no_refusal_is_untouched(item, world):
    assert untouched(review_outcome(item, world))


def test_a_pod_with_a_missing_claim_is_warned_and_recorded():
    outcome = review_outcome(pod_with_claims(BY_NAME), ENFORCE)
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == ["ResourceClaim c does not exist yet: the pod waits until it does"]
    assert answer(outcome)["auditAnnotations"] == {"outcome": "warned", "mode": "enforce"}
    assert outcome.record.outcome == "warned"
    assert outcome.record.problems


def test_impossible_own_claims_are_admitted_in_modes_warn_and_observe():
    warned = review_outcome(pod_with_claims(BY_TEMPLATE), state_with_template(16, mode="warn"))
    assert answer(warned)["allowed"]
    assert answer(warned)["warnings"][0].startswith("drawbridge would refuse this Pod in mode enforce: ")
    observed = review_outcome(pod_with_claims(BY_TEMPLATE), state_with_template(16, mode="observe"))
    assert answer(observed)["allowed"]
    assert "warnings" not in answer(observed)
    assert [outcome.record.outcome for outcome in (warned, observed)] == ["would refuse", "would refuse"]
    assert observed.record.problems


@pytest.mark.parametrize("entries", [None, 7, "x", {"a": 1}, [7, None, {"name": 7}, {"resourceClaimName": ["x"]}]])
def test_a_pod_with_claim_entries_of_any_shape_is_admitted(entries):
    item = gpu_pod(limits={})
    item["spec"]["resourceClaims"] = entries
    assert answer(review_outcome(item))["allowed"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("drawbridge-0123456789abcdef0123456789abcdef", "is not created for a copy"),
        ("spec", "does not exist yet: the pod waits"),
        ("own", "does not exist yet: the pod waits"),
    ],
)
def test_an_entry_with_our_name_is_judged_by_its_template(name, words):
    translated_pod, _ = mutated(gpu_pod(limits={"nvidia.com/gpu": "3"}))
    translated_pod["spec"]["resourceClaims"].append({"name": "drawbridge-more", "resourceClaimTemplateName": name})
    assert f"ResourceClaimTemplate {name} {words}" in answer(review_outcome(translated_pod))["warnings"][0]
    with_template_in_cluster = state(templates={("ns", name): template_of(3)})
    assert not answer(review_outcome(translated_pod, with_template_in_cluster))["allowed"]


def test_a_translated_pods_copy_elsewhere_gets_a_warning():
    translated_pod, outcome = mutated(gpu_pod())
    outcome_of_copy = admission.decide_review("mutate", review(translated_pod, namespace="elsewhere"), ENFORCE)
    [name] = outcome.record.templates
    warning, removed = answer(outcome_of_copy)["warnings"]
    assert warning == (
        f"ResourceClaimTemplate {name} is not created for a copy of a translated pod: "
        "use its original manifest, or replace the claims with the requests in drawbridge.dev/original"
    )
    assert "not written by drawbridge for this pod, and removed" in removed
    assert untouched(review_outcome(translated_pod)), "the pod itself gets a warning in its own namespace"


def test_a_forged_signature_is_ignored_and_removed():
    translated_pod = translated(TOO_MANY)
    (entry,) = translated_pod["spec"]["resourceClaims"]
    annotations = translated_pod["metadata"]["annotations"]
    annotations["drawbridge.dev/templates"] = annotations["drawbridge.dev/templates"].replace('"count":16', '"count":1')
    with_template_in_cluster = state(templates={("ns", entry["resourceClaimTemplateName"]): template_of(16)})
    assert not answer(review_outcome(translated_pod, with_template_in_cluster))["allowed"]
    cleaned = translated(translated_pod)
    assert "drawbridge.dev/templates" not in cleaned["metadata"].get("annotations", {})
