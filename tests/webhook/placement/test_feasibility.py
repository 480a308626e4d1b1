"""Feasibility: whether the devices of the cluster can ever serve the claims of a pod."""

import pytest
from msgspec.structs import replace

from dra import wire
from dra.budget import Budget
from dra.objects.claim import ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.taint import DeviceTaintRule
from dra.stock.stock import Stock
from tests.objects import claim, device_class, exactly, typed
from tests.webhook.admission.fleets import DRIVER, claim_for, gpu_slice, stock, typed_class, typed_node
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import Feasibility
from webhook.refusals import Code
from webhook.translate import PodClaim


def test_a_claim_that_free_devices_serve_fits():
    assert can_any_node_serve(stock(), [claim_for(4)]).verdict is Feasibility.FITS


def test_a_claim_for_more_than_any_node_has_never_fits():
    judgement = can_any_node_serve(stock(), [claim_for(5)])
    assert judgement.verdict is Feasibility.NEVER
    assert judgement.most_devices == 4
    assert (judgement.code, judgement.remedy) == (
        Code.TOO_MANY,
        "request at most 4 devices in claim c, request r",
    )


@pytest.mark.parametrize(
    ("reached", "remedy"),
    [
        ("small", "request at most 2 devices in claim c, request r"),
        ("bare", "request at most 4 devices in claim c, request r, and correct the pod's node selector or affinity"),
    ],
)
def test_the_remedy_is_for_nodes_that_the_pod_can_reach(reached, remedy):
    """No node has six devices. The largest node is not within reach."""
    sizes = {"small": 2, "large": 4}
    fleet = Stock.of(
        nodes=[typed_node(name) for name in (*sizes, "bare")],
        slices=[gpu_slice(name, count) for name, count in sizes.items()],
        classes=[typed_class()],
    )
    judgement = can_any_node_serve(fleet, [claim_for(6)], within=frozenset({reached}))
    assert (judgement.code, judgement.remedy) == (Code.TOO_MANY, remedy)
    assert "the largest node has 4" in judgement.text


def test_an_allocated_device_is_busy():
    holders = [claim_for(4, name="holder", held_devices=[f"gpu-{i}" for i in range(4)])]
    judgement = can_any_node_serve(stock(*holders, nodes=("n0",)), [claim_for(1)])
    assert judgement.verdict is Feasibility.BUSY
    assert "n0" in judgement.text
    assert "in use" in judgement.text


def test_an_unknown_class_never_fits_and_known_classes_are_listed():
    judgement = can_any_node_serve(stock(typed_class("b"), typed_class("a")), [claim_for(1, class_="nope")])
    assert judgement.verdict is Feasibility.NEVER
    assert f"existing classes: a, b, {DRIVER}" in judgement.text


def test_claims_of_one_pod_are_judged_together():
    assert can_any_node_serve(stock(), [claim_for(3, name="a")]).verdict is Feasibility.FITS
    assert can_any_node_serve(stock(), [claim_for(3, name="a"), claim_for(3, name="b")]).verdict is Feasibility.NEVER


def test_a_constraint_that_excludes_every_device_never_fits():
    judgement = can_any_node_serve(
        stock(), [claim_for(1, requests=["r"], matchAttribute="resource.kubernetes.io/pcieRoot")]
    )
    assert judgement.verdict is Feasibility.NEVER


def taint_rule(device=None, effect="NoSchedule"):
    """Return a rule that taints this device of each node, or all devices."""
    selector = {"driver": DRIVER} | ({"device": device} if device else {})
    spec = {"deviceSelector": selector, "taint": {"key": "maintenance", "effect": effect}}
    return wire.convert({"metadata": {"name": "drain"}, "spec": spec}, DeviceTaintRule)


@pytest.mark.parametrize(
    "claims", [[claim_for(5)], [claim_for(3, name="a"), claim_for(2, name="b")]], ids=["one claim", "two claims"]
)
@pytest.mark.parametrize("tainted", ["gpu-0", None], ids=["one device", "all devices"])
def test_tainted_devices_count_as_present(claims, tainted):
    """Each of the two nodes has four devices."""
    fleet = stock(taint_rule(tainted, effect="NoExecute" if tainted else "NoSchedule"))
    judgement = can_any_node_serve(fleet, claims)
    assert (judgement.verdict, judgement.code) == (Feasibility.NEVER, Code.TOO_MANY)
    assert judgement.most_devices == 4
    assert can_any_node_serve(fleet, [claim_for(4)]).verdict is Feasibility.BUSY


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        (f"device.driver == '{DRIVER}'", Feasibility.NEVER),
        (f"device.driver == '{DRIVER}' || 'x' in device.attributes", Feasibility.BUSY),
        ("true", Feasibility.BUSY),
    ],
)
def test_an_incomplete_pool_of_another_driver_does_not_count(expression, verdict):
    """A missing slice has devices of its driver only, so a class that names another driver can select none of them."""
    other = gpu_slice("n0", 1)
    pool = replace(other.spec.pool, name="nics", resource_slice_count=2)
    incomplete = replace(other, metadata=replace(other.metadata, name="nics"), spec=replace(other.spec, driver="nic.example.com", pool=pool))  # fmt: skip
    selecting = typed(device_class(DRIVER, expression))
    fleet = Stock.of(nodes=[typed_node("n0")], slices=[gpu_slice("n0", 4), incomplete], classes=[selecting])
    assert can_any_node_serve(fleet, [claim_for(9)]).verdict is verdict


@pytest.mark.parametrize(("keeps_old_slice", "verdict"), [(True, Feasibility.BUSY), (False, Feasibility.NEVER)])
def test_a_claim_is_impossible_once_only_an_empty_generation_remains(keeps_old_slice, verdict):
    old = gpu_slice("n0", 4)
    pool = replace(old.spec.pool, generation=2)
    meta, spec = replace(old.metadata, name="new"), replace(old.spec, pool=pool, devices=())
    slices = [old] * keeps_old_slice + [ResourceSlice(metadata=meta, spec=spec)]
    fleet = Stock.of(nodes=[typed_node("n0")], slices=slices, classes=[typed_class()])
    assert can_any_node_serve(fleet, [claim_for(1)]).verdict is verdict


def test_a_selector_that_fails_at_run_time_is_not_refused():
    judgement = can_any_node_serve(stock(), [claim_for(1, cel=f"device.attributes['{DRIVER}'].missing == 'x'")])
    assert judgement.verdict is Feasibility.BUSY
    assert "error" in judgement.text


def test_the_verdict_is_unknown_without_any_slice():
    empty = Stock.of(nodes=[typed_node("n0")], classes=[typed_class()])
    assert can_any_node_serve(empty, [claim_for(1)]).verdict is Feasibility.UNKNOWN


@pytest.mark.parametrize("sizes", [("40Gi", "80Gi"), ("80Gi", "40Gi")])
def test_the_nearest_node_has_the_largest_device(sizes):
    slices = [gpu_slice(f"n{at}", 1, memory=size) for at, size in enumerate(sizes)]
    fleet = Stock.of(
        slices=slices, classes=[typed_class()], nodes=[typed_node(piece.spec.node_name) for piece in slices]
    )
    judgement = can_any_node_serve(fleet, [typed(claim("c", exactly(DRIVER, memory="90000Mi"), namespace="ns"))])
    assert f"nearest is n{sizes.index('80Gi')}" in judgement.text
    assert judgement.remedy.startswith("request at most 80Gi of memory")


def test_one_known_class_among_alternatives_prevents_a_refusal():
    subrequests = [{"name": n, "deviceClassName": c, "allocationMode": "ExactCount", "count": 1} for n, c in (("a", "nope"), ("b", DRIVER))]  # fmt: skip
    value = {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": subrequests}]}},
    }
    judgement = can_any_node_serve(stock(), [wire.convert(value, ResourceClaim)])
    assert judgement.verdict is not Feasibility.NEVER


@pytest.mark.parametrize(
    ("memory", "count", "remedy"),
    [
        ("160Gi", 1, "80Gi of memory per device in claim c, request r, or 2 devices with 80Gi each"),
        ("200Gi", 1, "80Gi of memory per device in claim c, request r, or 3 devices with 68267Mi each"),
        ("400Gi", 1, "80Gi of memory per device in claim c, request r"),
        ("160Gi", 2, "80Gi of memory per device in claim c, request r"),
    ],
)
def test_the_remedy_splits_too_much_memory_only_where_possible(memory, count, remedy):
    claim_ = typed(claim("c", exactly(DRIVER, count=count, memory=memory), namespace="ns"))
    assert can_any_node_serve(stock(), [claim_]).remedy == f"request at most {remedy}"


def test_a_search_without_steps_left_gives_no_verdict():
    assert can_any_node_serve(stock(), [claim_for(4)], steps=0).verdict is Feasibility.UNKNOWN


def test_a_small_budget_yields_only_never_or_unknown():
    two_claims = [claim_for(2), claim_for(3, name="d", cel="true")]
    assert (
        can_any_node_serve(stock(), two_claims, budget=Budget()).remedy
        == "request at most 1 device in claim c, request r"
    )
    for steps in (2, 100, 1_000):
        hurried = can_any_node_serve(stock(), two_claims, budget=Budget(steps))
        assert hurried.verdict in (Feasibility.NEVER, Feasibility.UNKNOWN)
    assert can_any_node_serve(stock(), two_claims, budget=Budget(2)).verdict is Feasibility.UNKNOWN


def test_equal_claims_beyond_a_node_report_the_sum():
    of_equal_claims = can_any_node_serve(stock(), [claim_for(name=f"c{index}") for index in range(5)])
    assert (of_equal_claims.code, of_equal_claims.remedy) == (Code.TOO_MANY, "request at most 4 devices in total")
    requests = "; ".join(f"claim c{index}, request r" for index in range(4))
    assert of_equal_claims.text.endswith(f"{requests} and 1 more together request 5 devices of class {DRIVER} on one node, but the largest node has 4")  # fmt: skip
    of_many_claims = can_any_node_serve(stock(), [claim_for(name=f"c{index}") for index in range(40)])
    assert "together request 40 devices" in of_many_claims.text
    main = "container main (nvidia.com/gpu: 40)"
    pod_claim = PodClaim("", users=("main",), amounts={"nvidia.com/gpu": 40})
    judgement = can_any_node_serve(
        stock(), [claim_for(32, name="a"), claim_for(8, name="b")], generated={"a": pod_claim, "b": pod_claim}
    )
    assert f"{main} requests 40 devices" in judgement.text, "the two claims of one container are not added up"
    assert (judgement.claim, judgement.remedy) == ("a", "request at most 4 devices in container main")


DIFFERENT = {
    "selector": claim_for(3, name="d", cel="true"),
    "constraint": claim_for(3, name="d", requests=["r"], distinctAttribute="x/y"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_claims_for_different_devices_are_not_added_up(name):
    judgement = can_any_node_serve(stock(), [claim_for(2), DIFFERENT[name]])
    assert judgement.verdict is Feasibility.NEVER
    assert "together" not in judgement.text


def test_shareable_devices_are_not_counted_as_whole_devices():
    memory = {"value": "80Gi", "requestPolicy": {"default": "40Gi"}}
    fleet = stock(count=1, capacity={"memory": memory}, allowMultipleAllocations=True)
    assert can_any_node_serve(fleet, [claim_for(name="a"), claim_for(name="b")]).verdict is Feasibility.FITS
    judgement = can_any_node_serve(fleet, [claim_for(name=name) for name in "abc"])
    assert judgement.verdict is Feasibility.NEVER
    assert "together" not in judgement.text


# Each obstacle: rules, and arguments of `stock`.
CURABLE = {"a taint": ([taint_rule("gpu-8")], {}), "a pool that is not complete": ([], {"slices": 2})}


@pytest.mark.parametrize("obstacle", CURABLE)
def test_a_curable_obstacle_never_makes_a_claim_impossible(obstacle):
    """Many of the budgets end the search before all obstacles are checked."""
    rules, slice_fields = CURABLE[obstacle]
    fleet = stock(*rules, nodes=("n0",), count=9, **slice_fields)
    verdicts = set()
    for steps in range(10, 3_000, 31):
        judgement = can_any_node_serve(fleet, [claim_for(name=f"c{index}") for index in range(9)], budget=Budget(steps))
        verdicts.add(judgement.verdict)
        assert "spent" not in judgement.text, "a search that ended early gives the budget as its reason"
    assert verdicts == {Feasibility.UNKNOWN, Feasibility.BUSY} - ({Feasibility.UNKNOWN} if slice_fields else set())


def test_a_remedy_offers_only_amounts_that_were_checked():
    full_remedy = can_any_node_serve(stock(), [claim_for(9)]).remedy
    assert "at most 4 devices" in full_remedy
    budgets = map(Budget, range(10, 2_000, 13))
    remedies = {can_any_node_serve(stock(), [claim_for(9)], budget=budget).remedy for budget in budgets}
    assert remedies == {"", full_remedy}
