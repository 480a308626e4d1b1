"""The stock, which is the devices, nodes and claims that the allocator knows.

Changes update its indexes, share unchanged parts, and return the nodes that they affect.
"""

import random

import pytest
from msgspec.structs import replace

from dra import server as gates
from dra.stock.stock import Stock
from dra.stock.usage import FREE
from tests.dra.samples import DRIVER, holding, node, rule, slice_

POOL = (DRIVER, "p")


def view(stock):
    """Return the properties of a stock in a form that can be compared."""
    return {
        "pools": {
            name: [
                (pool.id, pool.status, [(page.name, [d.taints for d in page.devices]) for page in pool.accessible])
                for pool in stock.pools(name)
            ]
            for name in stock.nodes
        },
        "uses": {pool: (use.dedicated, use.shared, use.used) for pool, use in stock.uses.items()},
        "keys": [list(objects) for objects in (stock.slices, stock.nodes, stock.rules, stock.claims)],
    }


def random_object(rng):
    """Draw an object of a random kind."""
    number = rng.randrange(4)
    draw = rng.choice(
        [
            lambda n: slice_(f"s{n}", "d0", f"d{n}", node=f"n{n % 3}", pool=f"p{n % 2}", generation=rng.randrange(2)),
            lambda n: holding(f"c{n}", f"d{n}", pool=f"p{n % 2}", share=rng.choice([None, "s"])),
            lambda n: rule(f"r{n}", device=f"d{n}"),
            lambda n: node(f"n{n % 3}", zone=rng.choice("ab")),
        ]
    )
    return draw(number)


def without(stock, obj):
    kind = type(obj).__name__
    name = obj.metadata.name
    return stock.without(kind, f"team/{name}" if kind == "ResourceClaim" else name)


def test_single_changes_and_one_batch_give_equal_stocks():
    rng = random.Random(1)
    stock = Stock.of()
    for _ in range(400):
        obj = random_object(rng)
        stock = without(stock, obj) if rng.random() < 0.3 else stock.with_object(obj)
        afresh = Stock.of(
            slices=stock.slices.values(),
            nodes=stock.nodes.values(),
            rules=stock.rules.values(),
            claims=stock.claims.values(),
        )
        assert view(stock) == view(afresh)


def test_a_batch_counts_as_one_change_of_each_kind():
    rng = random.Random(2)
    stock = Stock.of(nodes=[node("n0"), node("n1"), node("n2")])
    for _ in range(200):
        objects = {(type(obj), obj.metadata.name): obj for obj in [random_object(rng) for _ in range(6)]}
        removed = {key: obj for key, obj in objects.items() if rng.random() < 0.3}
        added = [obj for key, obj in objects.items() if key not in removed]
        one_by_one = stock
        for obj in removed.values():
            one_by_one = without(one_by_one, obj)
        for obj in added:
            one_by_one = one_by_one.with_object(obj)
        at_once = stock.with_all(added, removed.values())
        assert view(at_once) == view(one_by_one)
        assert at_once.history.length - stock.history.length == len({kind for kind, _ in objects})
        affected, view_before, view_after = at_once.changed_since(stock), view(stock), view(at_once)
        if affected is not None:
            for name in stock.nodes.keys() - affected:
                pools = view_before["pools"][name]
                assert view_after["pools"][name] == pools
                for pool, *_ in pools:
                    assert view_after["uses"].get(pool) == view_before["uses"].get(pool)
        stock = at_once


def test_a_change_leaves_the_older_stock_as_it_was():
    before = Stock.of(slices=[slice_("a", "x")], nodes=[node()])
    after = before.with_object(slice_("a", "x", "y")).with_object(holding("c", "x"))
    assert len(before.slices["a"].spec.devices) == 1
    assert before.use(POOL) is FREE
    assert after.use(POOL).dedicated == {"x"}


def test_shares_are_added_up_and_admin_access_holds_nothing():
    stock = Stock.of(
        claims=[
            holding("a", "x", share="1", consumed={"memory": "1Gi"}),
            holding("b", "x", share="2", consumed={"memory": "2Gi"}),
            holding("c", "y", admin=True),
            holding("d", "z"),
        ]
    )
    use = stock.use(POOL)
    assert (use.dedicated, use.shared) == ({"z"}, {"x"})
    assert use.used == {"x": {"memory": 3 * 2**30 * 10**9}}


def test_objects_that_share_a_name_stay_two_objects():
    stock = Stock.of(slices=[slice_("a", "x", count=2), slice_("a", "y", count=2)], nodes=[node()])
    assert len(stock.slices) == 2
    (pool,) = stock.pools("n0")
    assert len(pool.accessible) == 2


def test_rules_taint_the_devices_they_select():
    stock = Stock.of(slices=[slice_("a", "x", "y")], rules=[rule(device="y")])
    assert [len(device.taints) for device in stock.pages["a"].devices] == [0, 1]
    lifted = stock.without("DeviceTaintRule", "rule")
    assert [len(device.taints) for device in lifted.pages["a"].devices] == [0, 0]


@pytest.mark.parametrize(("minor", "number_of_taints"), [(34, 1), (36, 1), (37, 0), (38, 0)])
def test_a_rule_without_a_selector_taints_all_devices_up_to_1_36(minor, number_of_taints):
    server = gates.Server(minor, frozenset([gates.TAINTS, gates.TAINT_RULES]))
    selecting = rule(device="x")
    without_selector = replace(selecting, spec=replace(selecting.spec, device_selector=None))
    stock = Stock.of(slices=[slice_("a", "x")], server=server)
    with_rule = Stock.of(slices=[slice_("a", "x")], rules=[without_selector], server=server)
    for tainted in (stock.with_object(without_selector), with_rule):
        assert [len(device.taints) for device in tainted.pages["a"].devices] == [number_of_taints]


def affected_nodes(stock, obj):
    return stock.with_object(obj).changed_since(stock)


def test_only_the_nodes_of_a_changed_pool_are_affected():
    stock = Stock.of(
        slices=[slice_("a", "x"), slice_("b", "x", node="n1", pool="q"), slice_("c", "x", pool="net", allNodes=True)]
    )
    assert stock.changed_since(stock) == frozenset()
    assert affected_nodes(stock, slice_("b", "y", node="n1", pool="q")) == {"n1"}
    assert affected_nodes(stock, holding("c", "x")) == {"n0"}
    assert affected_nodes(stock, node("n1")) == {"n1"}
    assert affected_nodes(stock, rule(device="x", pool="q")) == {"n1"}
    assert affected_nodes(stock, slice_("c", "y", pool="net", allNodes=True)) is None


def test_two_successors_of_a_stock_are_independent():
    stock = Stock.of(slices=[slice_("a", "x"), slice_("b", "x", node="n1", pool="q")])
    first, second = stock.with_object(slice_("a", "y")), stock.with_object(slice_("b", "y", node="n1", pool="q"))
    assert first.changed_since(stock) == {"n0"}
    assert second.changed_since(first) is None
    assert second.with_object(slice_("a", "z")).changed_since(second) == {"n0"}
    assert Stock.of(slices=[slice_("a", "x")]).changed_since(stock) is None


def test_changes_since_a_very_old_stock_are_unknown():
    first = Stock.of(slices=[slice_("a", "x")])
    stock = first
    for _ in range(9000):
        before, stock = stock, stock.with_object(node())
    assert stock.changed_since(first) is None
    assert stock.changed_since(before) == {"n0"}


def test_a_stock_is_immutable_once_handed_out():
    stock = Stock.of(slices=[slice_("a", "x")])
    second = stock.with_object(node())
    history = second.history, second.history.newer, second.history.newer.before
    stock.with_object(slice_("a", "y"))
    second.with_object(slice_("a", "z"))
    assert (second.history, second.history.newer, second.history.newer.before) == history
    assert second.changed_since(stock) == {"n0"}
    assert stock.changed_since(second) is None


def test_a_long_chain_of_stocks_keeps_a_bounded_history():
    stock = Stock.of()
    for _ in range(50_000):
        stock = stock.with_object(node())
    length = 0
    for newest in (stock.history.newer, stock.history.older):
        change = newest
        while change is not None:
            length, change = length + 1, change.before
    assert length <= 2 * 4096
    del stock, change, newest
