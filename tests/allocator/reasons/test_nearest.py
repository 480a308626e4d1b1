"""Hints about a claim that a node cannot serve: each names a change with which an attempt to serve the claim succeeded."""

import pytest
from msgspec.structs import replace

from allocator.reasons.nearest import Kind, nearest_fits
from allocator.strategies.choose import choose_devices
from dra.objects import EXTENDED_CLAIM
from dra.objects.taint import DeviceTaintRule
from dra.wire import convert
from tests.allocator.fleets import claim, fleet, gpu, partitions, shared, taken
from tests.objects import exactly


def hints(stock, *claims, tries=400):
    def fits(now, claims):
        return choose_devices(now, "n0", claims).answer.feasible

    assert not fits(stock, claims), "these claims fit, so no hint is needed"
    return {hint.kind: hint for hint in nearest_fits(stock, "n0", claims, fits=fits, tries=tries)}


SHARES = fleet(
    {"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))},
    taken("n0", "gpu-0", memory="18Gi", name="x"),
    taken("n0", "gpu-1", memory="40Gi", name="y"),
)


def test_the_largest_amount_is_what_the_emptiest_device_has_left():
    by_kind = hints(SHARES, claim("a", exactly("gpu", memory="80Gi")))
    assert by_kind[Kind.AMOUNT].value == "memory=62Gi"
    assert "62Gi" in by_kind[Kind.AMOUNT].text


def test_the_smallest_split_that_fits_is_suggested():
    assert hints(SHARES, claim("a", exactly("gpu", memory="80Gi")))[Kind.SPLIT].value == "2 x memory=40Gi"
    assert hints(SHARES, claim("a", exactly("gpu", memory="150Gi"))).get(Kind.SPLIT) is None


def test_every_claim_whose_release_is_enough_is_named():
    assert hints(SHARES, claim("a", exactly("gpu", memory="80Gi")))[Kind.RELEASE].claims == ("default/x", "default/y")


def test_the_smallest_group_of_claims_to_release_is_named():
    stock = fleet(
        {"n0": (gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))},
        *(taken("n0", f"gpu-{i}", name=f"c{i}") for i in range(3)),
    )
    assert len(hints(stock, claim("a", exactly("gpu", count=2)))[Kind.RELEASE].claims) == 2


def test_an_amount_beyond_every_idle_node_never_fits():
    by_kind = hints(SHARES, claim("a", exactly("gpu", memory="100Gi")))
    assert Kind.NEVER in by_kind
    assert Kind.RELEASE not in by_kind
    assert by_kind[Kind.AMOUNT].value == "memory=62Gi"


def test_a_smaller_count_on_an_idle_node_is_suggested():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))}, taken("n0", "gpu-0"), taken("n0", "gpu-1"))
    by_kind = hints(stock, claim("a", exactly("gpu", count=3)))
    assert by_kind[Kind.COUNT].value == "2"
    assert by_kind[Kind.COUNT].text == "on an idle n0: 2 of 3 devices would fit"


def test_a_smaller_count_that_fits_now_is_suggested():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"), gpu("gpu-2"))}, taken("n0", "gpu-0"))
    assert hints(stock, claim("a", exactly("gpu", count=3)))[Kind.COUNT].value == "2"


def test_a_taint_to_tolerate_is_named():
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"device": "gpu-0"},
            "taint": {"key": "repair", "value": "fan", "effect": "NoSchedule"},
        },
    }
    stock = fleet({"n0": (gpu("gpu-0"),)}, rules=[convert(rule, DeviceTaintRule)])
    assert hints(stock, claim("a", exactly("gpu")))[Kind.TAINT].value == "repair=fan:NoSchedule"


@pytest.mark.parametrize(
    ("key", "helps"),
    [("repair", "write a ResourceClaim"), ("drawbridge.dev/fence", "extendedResources")],
    ids=["taint of a driver", "taint of drawbridge"],
)
def test_a_hint_for_extended_resources_is_about_the_limits(key, helps):
    taint = {"key": key, "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": taint}}
    stock = fleet({"n0": (gpu("gpu-0"),)}, rules=[convert(rule, DeviceTaintRule)])
    wanted = claim("a", exactly("gpu"))
    by_name = replace(wanted, metadata=replace(wanted.metadata, annotations={EXTENDED_CLAIM: "true"}))
    hint = hints(stock, by_name)[Kind.TAINT]
    assert (hint.value, helps in hint.text, "if the request tolerated" in hint.text) == (
        f"{key}:NoSchedule",
        True,
        False,
    )


def test_a_blocking_constraint_is_named():
    stock = fleet({"n0": (gpu("gpu-0", root="r0"), gpu("gpu-1", root="r1"))})
    root = "resource.kubernetes.io/pcieRoot"
    wanted = claim("a", exactly("gpu", count=2), constraints=[{"matchAttribute": root}])
    assert hints(stock, wanted)[Kind.CONSTRAINT].value == root


def test_a_blocking_selector_is_named():
    wanted = claim("a", exactly("gpu", selector="device.driver == 'other'"))
    assert hints(fleet({"n0": (gpu("gpu-0"),)}), wanted)[Kind.SELECTOR].value == "device.driver == 'other'"


def test_another_class_that_fits_is_suggested():
    stock = fleet({"n0": partitions("gpu-0")}, taken("n0", "gpu-0-1g-0"))
    assert hints(stock, claim("a", exactly("8g")))[Kind.CLASS].value == "1g"


def test_a_claim_whose_removal_lets_the_others_fit_is_named():
    stock = fleet({"n0": (gpu("gpu-0"),)})
    assert hints(stock, claim("a", exactly("gpu")), claim("b", exactly("gpu")))[Kind.CLAIM].claims == (
        "default/a",
        "default/b",
    )


@pytest.mark.parametrize("tries", [0, 1, 5, 20])
def test_a_search_for_hints_stops_after_its_tries(tries):
    calls = 0

    def fits(now, claims):
        nonlocal calls
        calls += 1
        return choose_devices(now, "n0", claims).answer.feasible

    nearest_fits(SHARES, "n0", [claim("a", exactly("gpu", memory="80Gi"))], fits=fits, tries=tries)
    assert calls == tries


@pytest.mark.parametrize("decided", range(24))
def test_an_undecided_try_gives_no_hint(decided):
    """A hint depends only on its own attempts, so an undecided attempt changes no other hint."""
    claims = [claim("a", exactly("gpu", memory="80Gi"))]
    all_hints = hints(SHARES, *claims)
    left = decided

    def fits(now, some):
        nonlocal left
        left -= 1
        return None if left < 0 else choose_devices(now, "n0", some).answer.feasible

    found_hints = nearest_fits(SHARES, "n0", claims, fits=fits)
    assert all(hint == all_hints[hint.kind] for hint in found_hints)
    assert bool(found_hints) == (decided > 2), "the first hint needs three decided attempts"


def test_an_alternative_is_relaxed_under_its_own_name():
    wanted = claim(
        "a",
        {
            "name": "r",
            "firstAvailable": [{**exactly("gpu", memory="100Gi")["exactly"], "name": "large"}],
        },
    )
    assert hints(SHARES, wanted)[Kind.AMOUNT].request == "r/large"
