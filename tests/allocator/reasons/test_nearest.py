"""Hints about a claim that a node cannot serve: each names a change with which an attempt to serve the claim succeeded."""

import pytest
from msgspec.structs import replace

from allocator.reasons.nearest import Kind, nearest_fits
from allocator.strategies.choose import choose_devices
from tests.allocator.fleets import claim, fleet, gpu, partitions, shared, taken
from tests.loops import every
from tests.objects import exactly


def hints_by_kind(stock, *claims, tries=400):
    def fits(changed_claims):
        return choose_devices(stock, "n0", changed_claims).answer.feasible

    assert not fits(claims), "these claims fit, so no hint is needed"
    return {hint.kind: hint for hint in nearest_fits(claims, stock.classes, fits=fits, tries=tries)}


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


def test_a_smaller_count_that_fits_now_is_suggested():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))}, taken("n0", "gpu-0"))
    assert hints_by_kind(stock, claim("a", exactly("gpu", count=3)))[Kind.COUNT].value == "2"


def test_a_blocking_constraint_is_named():
    stock = fleet({"n0": (gpu("gpu-0", root="r0"), gpu("gpu-1", root="r1"))})
    root = "resource.kubernetes.io/pcieRoot"
    pending_claim = claim("a", exactly("gpu", count=2), constraints=[{"matchAttribute": root}])
    assert hints_by_kind(stock, pending_claim)[Kind.CONSTRAINT].value == root


@pytest.mark.parametrize("selector", ["device.attributes['gpu.example.com'].numaNode == 1", "device.driver == 'other'"])
def test_a_blocking_selector_is_named_unless_it_selects_the_kind_of_device(selector):
    pending_claim = claim("a", exactly("gpu", selector=selector))
    hint = hints_by_kind(fleet({"n0": (gpu("gpu-0", numa=0),)}), pending_claim).get(Kind.SELECTOR)
    assert (hint and hint.value) == (None if "driver" in selector else selector)


@pytest.mark.parametrize(("key", "suggested"), [("example.com/part", "1g"), ("example.com/card", None)])
def test_only_a_class_with_the_same_resource_name_or_driver_is_suggested(key, suggested):
    stock = fleet({"n0": partitions("gpu-0")}, taken("n0", "gpu-0-1g-0"))
    for name, resource in (("8g", "example.com/part"), ("1g", key)):
        class_ = stock.classes[name]
        stock = stock.with_object(replace(class_, spec=replace(class_.spec, extended_resource_name=resource)))
    hint = hints_by_kind(stock, claim("a", exactly("8g"))).get(Kind.CLASS)
    assert (hint and hint.value) == suggested


@pytest.mark.parametrize("tries", [0, 1, 5, 15])
def test_a_search_for_hints_stops_after_its_tries(tries):
    calls = 0

    def fits(changed_claims):
        nonlocal calls
        calls += 1
        return choose_devices(SHARED_GPUS, "n0", changed_claims).answer.feasible

    nearest_fits([claim("a", exactly("gpu", memory="80Gi"))], SHARED_GPUS.classes, fits=fits, tries=tries)
    assert calls == tries


@every("decided_attempts", range(24))
def test_an_undecided_attempt_changes_no_other_hint(decided_attempts):
    """A hint depends only on its own attempts, so an undecided attempt changes no other hint."""
    claims = [claim("a", exactly("gpu", memory="80Gi"))]
    all_hints = hints_by_kind(SHARED_GPUS, *claims)
    attempts_left = decided_attempts

    def fits(changed_claims):
        nonlocal attempts_left
        attempts_left -= 1
        return None if attempts_left < 0 else choose_devices(SHARED_GPUS, "n0", changed_claims).answer.feasible

    found_hints = nearest_fits(claims, SHARED_GPUS.classes, fits=fits)
    assert all(hint == all_hints[hint.kind] for hint in found_hints)
    assert bool(found_hints) == (decided_attempts > 17), "the first hint needs 18 decided attempts"


def test_a_hint_about_an_alternative_names_request_and_alternative():
    pending_claim = claim(
        "a",
        {
            "name": "r",
            "firstAvailable": [{**exactly("gpu", memory="100Gi")["exactly"], "name": "large"}],
        },
    )
    assert hints_by_kind(SHARED_GPUS, pending_claim)[Kind.AMOUNT].request == "r/large"
