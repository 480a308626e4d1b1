"""Which slices form a pool, and what makes a pool invalid, beside what tests/allocator/search/test_differential.py compares with Kubernetes."""

import pytest

from dra.errors import NodeSelectorError
from dra.stock import PoolDevices
from dra.stock.pool import PoolStatus, newest, page_of, usable
from dra.stock.stock import Stock
from tests.dra.samples import consuming, node, slice_

SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def pools(*slices, seen_by=None):
    return Stock.of(slices=slices, nodes=[seen_by or node()]).pools((seen_by or node()).metadata.name)


def names(pool):
    return [device.name for page in pool.accessible for device in page.devices]


def test_binding_conditions_on_another_node_do_not_count():
    bound = {"name": "d", "bindingConditions": ["x"], "bindingFailureConditions": ["y"]}
    listed = pools(
        slice_("a", "d", pool="a", count=2),
        slice_("a2", bound, pool="a", count=2, node="n1"),
        slice_("b", "d", pool="b"),
    )
    assert [pool.id[1] for pool in listed] == ["a", "b"]


def test_slices_of_other_nodes_only_complete_a_pool():
    (pool,) = pools(slice_("a", "x", count=2), slice_("b", "y", node="n1", count=2))
    assert names(pool) == ["x"]
    assert [page.name for page in pool.elsewhere] == ["b"]


def test_a_node_selector_that_cannot_be_parsed_names_the_slice():
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Maybe"}]}]}
    with pytest.raises(NodeSelectorError, match="ResourceSlice/a"):
        pools(slice_("a", "x", nodeSelector=broken))


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ((slice_("a", "x", "x"),), "two devices are called x"),
        ((slice_("a", consuming("x", gone={"c": "1"})),), "which does not exist"),
        (
            (slice_("a", consuming("x", s={"c": "1"}), count=2), slice_("c", count=2, counters={"s": {"d": "1"}})),
            "which s lacks",
        ),
        (
            (slice_("c", count=2, counters={"s": {"d": "1"}}), slice_("e", count=2, counters={"s": {"d": "1"}})),
            "declared twice",
        ),
    ],
)
def test_pools_that_contradict_themselves_are_invalid(slices, reason):
    (pool,) = pools(*slices)
    assert pool.status is PoolStatus.INVALID
    assert reason in pool.reason
    assert usable(slices) == []


def test_an_unknown_counter_on_another_node_invalidates_the_pool():
    (pool,) = pools(slice_("a", "x", count=2), slice_("b", consuming("y", gone={"c": "1"}), count=2, node="n1"))
    assert pool.status is PoolStatus.INVALID


def test_a_slice_with_counters_yields_no_devices():
    (pool,) = pools(slice_("c", "x", counters={"s": {"m": "40Gi"}}))
    assert names(pool) == []
    assert pool.counters == {"s": {"m": 40 * 2**30 * 10**9}}


@pytest.mark.parametrize(
    ("first", "second", "is_valid"),
    [
        ({}, {}, False),
        ({}, {"node": "n1"}, True),  # no node reaches both slices
        ({"node": "", "allNodes": True}, {"node": "", "allNodes": True}, False),
        ({"node": "", "nodeSelector": SELECTOR}, {"node": "", "nodeSelector": SELECTOR}, False),
        ({"node": "", "nodeSelector": SELECTOR}, {"node": "", "allNodes": True}, False),
    ],
)
def test_two_reachable_devices_of_one_name_invalidate_the_pool(first, second, is_valid):
    slices = [slice_("a", "x", count=2, **first), slice_("b", "x", count=2, **second)]
    assert bool(usable(slices)) is is_valid
    (pool,) = pools(*slices, seen_by=node(zone="a"))
    assert (pool.status is PoolStatus.OK) is is_valid


HUGE = 2**62
SHARED = {"node": "", "allNodes": True}


def names_kept_by(choose, *slices):
    return [slice_.metadata.name for slice_ in choose(slices)]


@pytest.mark.parametrize(
    "stolen",
    [
        {"generation": HUGE},
        {"generation": HUGE, "count": HUGE},
        {"generation": 1},  # the pool then has one slice more than its resourceSliceCount
        {"generation": 1, "counters": {"k": {"m": "1"}}},
        {"generation": HUGE, "counters": {"k": {"m": "1"}}},
    ],
)
@pytest.mark.parametrize("choose", [newest, usable])
def test_a_node_cannot_disturb_the_pool_of_another_node(choose, stolen):
    """NodeRestriction checks nodeName only, so a compromised node can publish slices with any pool name."""
    honest_slices = [
        slice_("a", consuming("x", k={"m": "1"}), node="n1", count=2),
        slice_("c", node="n1", count=2, counters={"k": {"m": "4"}}),
        slice_("s", "y", pool="q", **SHARED),
    ]
    device_names = () if "counters" in stolen else ("x",)
    lies = [slice_(f"lie-{pool}", *device_names, pool=pool, **stolen) for pool in ("p", "q")]
    assert set(names_kept_by(choose, *honest_slices)) == {"a", "c", "s"}
    assert set(names_kept_by(choose, *honest_slices, *lies)) >= {"a", "c", "s"}
    assert set(names_kept_by(choose, *lies, *honest_slices)) >= {"a", "c", "s"}


def test_a_newer_generation_of_a_node_supersedes_its_own_slices():
    old, new = slice_("old", "x", node="n1"), slice_("new", "y", node="n1", generation=2)
    assert names_kept_by(newest, old, new) == ["new"]
    assert names_kept_by(newest, old, slice_("new", "y", generation=2, **SHARED)) == ["new"]
    assert names_kept_by(newest, slice_("old", "x", **SHARED), slice_("new", "y", generation=2)) == ["old", "new"]


def test_missing_slices_of_a_pool_may_be_on_other_nodes():
    first = slice_("a", "x", count=2)
    assert names_kept_by(usable, first) == []
    assert names_kept_by(usable, first, slice_("b", "y", node="n1", count=2)) == ["a", "b"]


def test_a_node_cannot_reuse_the_name_of_a_shared_device():
    """The pool becomes invalid only for the node whose slice reuses the name."""
    pool = [slice_("a", "x", count=2), slice_("b", "x", count=2, **SHARED)]
    assert names_kept_by(usable, *pool) == ["b"]
    assert pools(*pool)[0].status is PoolStatus.INVALID
    assert pools(*pool, seen_by=node("n1"))[0].status is PoolStatus.OK


@pytest.mark.parametrize(
    ("claim_node", "expected_node"),
    [("n0", "n0"), ("n1", "n1"), ("n2", ""), ("", "")],
    ids=["one", "other", "neither", "unknown"],
)
def test_a_claim_prefers_the_device_of_its_own_node(claim_node, expected_node):
    slices = [slice_("a", "x"), slice_("b", "x", node="n1"), slice_("c", "x", **SHARED)]
    for order in (slices, slices[::-1]):
        published = PoolDevices.index(map(page_of, order)).find("x", claim_node)
        assert published is not None
        assert (published[0].slice.spec.node_name or "") == expected_node
    only_n0 = PoolDevices.index([page_of(slices[0])])
    assert (only_n0.find("x", claim_node) is not None) is (claim_node in ("", "n0"))


def test_an_unusable_pool_lists_its_own_slices_first():
    slice_of_another_node = slice_("other", "x", count=2)
    own_slices = slice_("a", "x", node="n1", count=3), slice_("old", "z", node="n1", generation=0)
    (pool,) = pools(slice_of_another_node, *own_slices, slice_("all", "y", generation=0, **SHARED), seen_by=node("n1"))
    assert pool.status is PoolStatus.INCOMPLETE
    assert [slice_of_pool.name for slice_of_pool in pool.unusable] == ["a", "old", "all", "other"]
