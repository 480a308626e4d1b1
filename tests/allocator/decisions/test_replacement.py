"""Plans for claims that would have other amounts."""

import pytest

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions import Unreplaceable, plan_replacement
from dra.objects import DeviceClass, ResourceClaim
from dra.quantity import Quantity
from dra.stock import Stock
from tests.allocator.decisions.test_decider import convert
from tests.dra.samples import DRIVER, node, slice_

CLASS = convert({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}}, DeviceClass)  # fmt: skip


def wanting(name, memory):
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "capacity": {"requests": {"memory": memory}}}  # fmt: skip
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}, ResourceClaim)


def stock(*held, nodes=("n0",)):
    """One GPU of 40Gi on each node; each of (claim, node) holds its share there."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    gpu = {"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi", "requestPolicy": policy}}}  # fmt: skip
    made = Stock.of(slices=[slice_(name, gpu, node=name, pool=name) for name in nodes], nodes=[node(name) for name in nodes], classes=[CLASS])  # fmt: skip
    for claim, where in held:
        [granted] = allocate(made, where, [claim]).allocations
        made = made.with_object(with_allocation(claim, granted.allocation))
    return made


def memory(text):
    return {"memory": Quantity.parse(text)}


def test_more_fits_where_the_claim_is_once_it_has_ended():
    plan = plan_replacement(stock((wanting("a", "30Gi"), "n0")), "default/a", "r", memory("36Gi"))
    assert (plan.fits, plan.node, plan.nodes_beside_old) == (True, "n0", ())
    assert plan.claim.spec.devices.requests[0].exactly.capacity.requests == memory("36Gi")
    assert plan.claim.status.allocation is None


def test_a_node_with_room_for_both_is_named():
    found = stock((wanting("a", "30Gi"), "n0"), nodes=("n0", "n1"))
    assert plan_replacement(found, "default/a", "r", memory("36Gi")).nodes_beside_old == ("n1",)


def test_less_fits_beside_the_old_one_on_the_same_device():
    assert plan_replacement(stock((wanting("a", "20Gi"), "n0")), "default/a", "r", memory("10Gi")).nodes_beside_old == (
        "n0",
    )


def test_a_resize_that_does_not_fit_reports_the_largest_fit():
    found = stock((wanting("a", "10Gi"), "n0"), (wanting("b", "15Gi"), "n0"))
    plan = plan_replacement(found, "default/a", "r", memory("30Gi"))
    assert (plan.fits, plan.largest) == (False, memory("25Gi"))


def test_asking_changes_nothing():
    found = stock((wanting("a", "10Gi"), "n0"))
    before = dict(found.claims)
    plan_replacement(found, "default/a", "r", memory("30Gi"))
    assert found.claims == before


@pytest.mark.parametrize(
    ("key", "request_", "words"),
    [("default/x", "r", "does not exist"), ("default/new", "r", "no devices yet"), ("default/a", "q", "no request q")],
)
def test_an_impossible_resize_is_refused_with_the_reason(key, request_, words):
    found = stock((wanting("a", "10Gi"), "n0")).with_object(wanting("new", "1Gi"))
    with pytest.raises(Unreplaceable, match=words):
        plan_replacement(found, key, request_, memory("2Gi"))
