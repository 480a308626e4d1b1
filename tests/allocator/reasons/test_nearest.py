"""Hints about a claim that a node cannot serve: each names a change with which an attempt to serve the claim succeeded."""

import pytest
from msgspec.structs import replace

from allocator.reasons.nearest import Kind, nearest_fits
from allocator.strategies.choose import choose_devices
from dra.objects import EXTENDED_CLAIM
from dra.objects.claim import ResourceClaimConsumerReference
from dra.objects.taint import DeviceTaintRule
from dra.wire import convert
from tests.allocator.fleets import claim, fleet, gpu, partitions, shared, taken
from tests.loops import every
from tests.objects import exactly


def hints_by_kind(stock, *claims, tries=400):
    def fits(changed_stock, changed_claims):
        return choose_devices(changed_stock, "n0", changed_claims).answer.feasible

    assert not fits(stock, claims), "these claims fit, so no hint is needed"
    return {hint.kind: hint for hint in nearest_fits(stock, "n0", claims, fits=fits, tries=tries)}


SHARED_GPUS = fleet(
    {"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))},
    taken("n0", "gpu-0", memory="18Gi", name="x"),
    taken("n0", "gpu-1", memory="40Gi", name="y"),
)


def test_the_largest_amount_left_on_a_device_is_suggested():
    by_kind = hints_by_kind(SHARED_GPUS, claim("a", exactly("gpu", memory="80Gi")))
    assert by_kind[Kind.AMOUNT].value == "memory=62Gi"
    assert "62Gi" in by_kind[Kind.AMOUNT].text


def test_the_smallest_split_that_fits_is_suggested():
    assert hints_by_kind(SHARED_GPUS, claim("a", exactly("gpu", memory="80Gi")))[Kind.SPLIT].value == "2 x memory=40Gi"
    assert hints_by_kind(SHARED_GPUS, claim("a", exactly("gpu", memory="150Gi"))).get(Kind.SPLIT) is None


def test_every_claim_whose_release_is_enough_is_named():
    assert hints_by_kind(SHARED_GPUS, claim("a", exactly("gpu", memory="80Gi")))[Kind.RELEASE].claims == (
        "default/x",
        "default/y",
    )


def test_the_smallest_group_of_claims_to_release_is_named():
    stock = fleet(
        {"n0": (gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))},
        *(taken("n0", f"gpu-{i}", name=f"c{i}") for i in range(3)),
    )
    assert len(hints_by_kind(stock, claim("a", exactly("gpu", count=2)))[Kind.RELEASE].claims) == 2


@pytest.mark.parametrize(
    ("consumers", "count", "text"),
    [
        (("p", "q"), 1, "claim default/c0 or claim default/c1 is released"),
        (("p", "q"), 2, "claim default/c0 and claim default/c1 are released"),
        (("", ""), 1, "claim default/c0 or claim default/c1, used by no pod, is deleted"),
        (("", ""), 2, "claim default/c0 and claim default/c1, used by no pod, are deleted"),
        (("p", ""), 1, "claim default/c1, used by no pod, is deleted"),
        (("p", ""), 2, "claim default/c1 and claim default/c0 are released or deleted"),
        (("extended-p", "extended-q"), 1, "pod default/extended-p or pod default/extended-q ends"),
        (("extended-p", "extended-q"), 2, "pod default/extended-p and pod default/extended-q end"),
        (("extended-p", "q"), 2, "pod default/extended-p and claim default/c1 are released"),
    ],
)
def test_a_hint_says_how_devices_are_released(consumers, count, text):
    """Pods whose names begin with "extended-" have a claim that kube-scheduler created for an extended resource."""
    holding_claims = []
    for number, consumer in enumerate(consumers):
        holder = taken("n0", f"gpu-{number}", name=f"c{number}")
        if consumer.startswith("extended-"):
            holder = replace(holder, metadata=replace(holder.metadata, annotations={EXTENDED_CLAIM: "true"}))
        if consumer:
            reference = ResourceClaimConsumerReference(resource="pods", name=consumer, uid=consumer)
            holder = replace(holder, status=replace(holder.status, reserved_for=(reference,)))
        holding_claims.append(holder)
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))}, *holding_claims)
    hints = hints_by_kind(stock, claim("a", exactly("gpu", count=count)))
    assert hints[Kind.RELEASE].text == f"would fit once {text}"


@pytest.mark.parametrize(("consumers", "kinds"), [((), [Kind.RELEASE, Kind.COUNT]), (("p",), [Kind.COUNT, Kind.RELEASE])])  # fmt: skip
def test_what_ends_a_pod_is_suggested_last(consumers, kinds):
    holder = taken("n0", "gpu-0", name="c0")
    references = tuple(ResourceClaimConsumerReference(resource="pods", name=name, uid=name) for name in consumers)
    holder = replace(holder, status=replace(holder.status, reserved_for=references))
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))}, holder)
    assert list(hints_by_kind(stock, claim("a", exactly("gpu", count=2)))) == kinds


def test_other_devices_than_requested_are_suggested_after_the_end_of_a_pod():
    references = (ResourceClaimConsumerReference(resource="pods", name="p", uid="p"),)
    holder = taken("n0", "gpu-0", name="c0")
    holder = replace(holder, status=replace(holder.status, reserved_for=references))
    stock = fleet({"n0": (gpu("gpu-0", numa=0), gpu("gpu-1", numa=1))}, holder)
    request = exactly("gpu", selector="device.attributes['gpu.example.com'].numaNode == 0")
    assert list(hints_by_kind(stock, claim("a", request))) == [Kind.RELEASE, Kind.SELECTOR]


def test_an_amount_larger_than_any_device_never_fits():
    by_kind = hints_by_kind(SHARED_GPUS, claim("a", exactly("gpu", memory="100Gi")))
    assert Kind.NEVER in by_kind
    assert Kind.RELEASE not in by_kind
    assert by_kind[Kind.AMOUNT].value == "memory=62Gi"


def test_a_smaller_count_on_an_idle_node_is_suggested():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))}, taken("n0", "gpu-0"), taken("n0", "gpu-1"))
    by_kind = hints_by_kind(stock, claim("a", exactly("gpu", count=3)))
    assert by_kind[Kind.COUNT].value == "2"
    assert by_kind[Kind.COUNT].text == "on an idle n0: 2 of 3 devices would fit"


def test_a_smaller_count_that_fits_now_is_suggested():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))}, taken("n0", "gpu-0"))
    assert hints_by_kind(stock, claim("a", exactly("gpu", count=3)))[Kind.COUNT].value == "2"


def test_a_taint_to_tolerate_is_named():
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"device": "gpu-0"},
            "taint": {"key": "repair", "value": "fan", "effect": "NoSchedule"},
        },
    }
    stock = fleet({"n0": (gpu("gpu-0"),)}, rules=[convert(rule, DeviceTaintRule)])
    assert hints_by_kind(stock, claim("a", exactly("gpu")))[Kind.TAINT].value == "repair=fan:NoSchedule"


@pytest.mark.parametrize(
    ("key", "advice"),
    [("repair", "write a ResourceClaim"), ("drawbridge.dev/fence", "extendedResources")],
    ids=["taint of a driver", "taint of drawbridge"],
)
def test_a_taint_hint_for_extended_resources_suggests_no_toleration(key, advice):
    taint = {"key": key, "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": taint}}
    stock = fleet({"n0": (gpu("gpu-0"),)}, rules=[convert(rule, DeviceTaintRule)])
    pending_claim = claim("a", exactly("gpu"))
    extended_claim = replace(
        pending_claim, metadata=replace(pending_claim.metadata, annotations={EXTENDED_CLAIM: "true"})
    )
    hint = hints_by_kind(stock, extended_claim)[Kind.TAINT]
    assert (hint.value, advice in hint.text, "if the request tolerated" in hint.text) == (
        f"{key}:NoSchedule",
        True,
        False,
    )


def test_a_blocking_constraint_is_named():
    stock = fleet({"n0": (gpu("gpu-0", root="r0"), gpu("gpu-1", root="r1"))})
    root = "resource.kubernetes.io/pcieRoot"
    pending_claim = claim("a", exactly("gpu", count=2), constraints=[{"matchAttribute": root}])
    assert hints_by_kind(stock, pending_claim)[Kind.CONSTRAINT].value == root


def test_a_blocking_selector_is_named():
    pending_claim = claim("a", exactly("gpu", selector="device.driver == 'other'"))
    assert (
        hints_by_kind(fleet({"n0": (gpu("gpu-0"),)}), pending_claim)[Kind.SELECTOR].value == "device.driver == 'other'"
    )


def test_a_class_whose_device_is_free_is_suggested():
    stock = fleet({"n0": partitions("gpu-0")}, taken("n0", "gpu-0-1g-0"))
    assert hints_by_kind(stock, claim("a", exactly("8g")))[Kind.CLASS].value == "1g"


def test_a_claim_whose_removal_lets_the_others_fit_is_named():
    stock = fleet({"n0": (gpu("gpu-0"),)})
    assert hints_by_kind(stock, claim("a", exactly("gpu")), claim("b", exactly("gpu")))[Kind.CLAIM].claims == (
        "default/a",
        "default/b",
    )


@pytest.mark.parametrize("tries", [0, 1, 5, 20])
def test_a_search_for_hints_stops_after_its_tries(tries):
    calls = 0

    def fits(changed_stock, changed_claims):
        nonlocal calls
        calls += 1
        return choose_devices(changed_stock, "n0", changed_claims).answer.feasible

    nearest_fits(SHARED_GPUS, "n0", [claim("a", exactly("gpu", memory="80Gi"))], fits=fits, tries=tries)
    assert calls == tries


@every("decided_attempts", range(24))
def test_an_undecided_attempt_changes_no_other_hint(decided_attempts):
    """A hint depends only on its own attempts, so an undecided attempt changes no other hint."""
    claims = [claim("a", exactly("gpu", memory="80Gi"))]
    all_hints = hints_by_kind(SHARED_GPUS, *claims)
    attempts_left = decided_attempts

    def fits(changed_stock, changed_claims):
        nonlocal attempts_left
        attempts_left -= 1
        return None if attempts_left < 0 else choose_devices(changed_stock, "n0", changed_claims).answer.feasible

    found_hints = nearest_fits(SHARED_GPUS, "n0", claims, fits=fits)
    assert all(hint == all_hints[hint.kind] for hint in found_hints)
    assert bool(found_hints) == (decided_attempts > 2), "the first hint needs three decided attempts"


def test_a_hint_about_an_alternative_names_request_and_alternative():
    pending_claim = claim(
        "a",
        {
            "name": "r",
            "firstAvailable": [{**exactly("gpu", memory="100Gi")["exactly"], "name": "large"}],
        },
    )
    assert hints_by_kind(SHARED_GPUS, pending_claim)[Kind.AMOUNT].request == "r/large"
