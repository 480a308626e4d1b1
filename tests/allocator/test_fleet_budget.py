"""The budget of a question about all nodes: every step is charged, and an interrupted question continues where it stopped."""

from types import SimpleNamespace

import pytest

from allocator import Answer, FleetMemo, Options, Verdict, allocate, fleet
from allocator.problem import attributes
from dra.budget import Budget
from dra.cache import Cache
from dra.cel import selector
from dra.objects import node as node_objects
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.node import Node
from dra.stock import pool
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator import fleets
from tests.dra.samples import slice_
from tests.objects import exactly


def test_a_large_node_leaves_budget_to_the_others():
    small_nodes = {f"n{n}": [fleets.gpu("a", memory="80Gi")] for n in range(9)}
    large_node = [fleets.gpu(f"g{i}", memory=f"{i + 1}Mi") for i in range(2_000)]
    stock = fleets.fleet({"evil": large_node} | small_nodes)
    claims = [
        fleets.claim(
            "c",
            exactly("gpu", selector=f'device.capacity["{fleets.DRIVER}"].memory.compareTo(quantity("1Gi")) > 0'),
        )
    ]
    answers = fleet(stock, claims, options=Options(budget=Budget(5_000)))
    assert answers.verdict("evil") is Verdict.UNDECIDED
    assert sorted(answers.feasible) == sorted(small_nodes)
    assert list(answers) == list(stock.nodes)


def test_an_impatient_caller_gets_partial_answers():
    stock = fleets.fleet({f"n{n}": [fleets.gpu(f"d{i}") for i in range(n + 4)] for n in range(6)})
    claims = [fleets.claim("c", *(exactly("gpu", name=f"r{n}", count=2) for n in range(6)))]
    hurried = fleet(stock, claims, options=Options(budget=Budget(is_out_of_time=lambda: True)))
    patient = fleet(stock, claims)
    assert all(patient.verdict(node) is not Verdict.UNDECIDED for node in stock.nodes)
    assert len(hurried) == len(patient)


def waiting_for(looks):
    """Return options with a budget that is out of time after a number of checks."""
    left = iter(range(looks))
    return Options(budget=Budget(is_out_of_time=lambda: next(left, None) is None))


def test_an_unexamined_node_is_undecided():
    """Kubernetes cannot parse the node selector of a slice. Before the allocator has read the selector, the node is undecided."""
    unparsable = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Maybe", "values": ["a"]}]}]}
    stock = fleets.fleet({"n0": [fleets.gpu("a")]}).with_object(slice_("s", "x", nodeSelector=unparsable))
    claims = [fleets.claim("c", exactly("gpu"))]
    out_of_time = Options(budget=Budget(10**9, lambda: True))
    assert fleet(stock, claims, options=out_of_time)["n0"].verdict is Verdict.UNDECIDED
    assert fleet(stock, claims)["n0"].verdict is Verdict.ERROR


def test_a_fleet_check_resumes_where_time_ran_out():
    """To read all slices of 5,000 nodes takes 34 ms, but the budget is 7 ms, so reading must not precede all answers."""
    stock = fleets.fleet({f"n{n:03}": [fleets.gpu("a")] for n in range(300)})
    claims, memo = [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided = [0]
    while decided[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=waiting_for(4), memo=memo)
        decided.append(sum(answers.verdict(node) is not Verdict.UNDECIDED for node in answers))
        assert 0 < decided[-1] - decided[-2] <= 4 * 32
        stock = stock.with_object(fleets.taken(f"n{len(decided):03}", "a"))  # changes a node that is already decided
    assert len(decided) > 3
    patient = fleet(stock, claims)
    answers = fleet(stock, claims, memo=memo)
    assert {node: answers.verdict(node) for node in answers} == {node: patient.verdict(node) for node in patient}
    assert [node for node in answers if answers.verdict(node) is Verdict.UNDECIDED] == []
    assert len(patient.feasible) == 300 - len(decided) + 1


def selective(nodes, devices, values=1):
    """Return a fleet in which each device has a node selector of its own, on a label that differs on every node."""

    def other_hosts(number):
        values_ = [f"other-{number}-{i}" for i in range(values)]
        return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": values_}]}]}

    per_slice = [range(i, min(i + 100, devices)) for i in range(0, devices, 100)]
    return Stock.of(
        nodes=[convert({"metadata": {"name": f"n{n}", "labels": {"host": f"h{n}"}}}, Node) for n in range(nodes)],
        slices=[
            slice_(
                f"s{numbers[0]}",
                *[{"name": f"d{n}", "nodeSelector": other_hosts(n)} for n in numbers],
                count=len(per_slice),
                perDeviceNodeSelection=True,
            )
            for numbers in per_slice
        ],
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )


def test_device_node_selectors_count_toward_the_budget():
    """The allocator matches each selector with each node. For 32 nodes and 3,200 devices this takes 0.4 s."""
    stock = selective(100, 128)
    answers = fleet(stock, [fleets.claim("c", exactly("gpu"))], options=waiting_for(20))
    assert 20 <= sum(answers.verdict(node) is Verdict.FEASIBLE for node in answers) <= 20 * 4


@pytest.fixture
def matched(monkeypatch):
    """Record the name of a node for each match of the node with a device or slice."""
    names = []

    def matches(selector, node):
        names.append(node.metadata.name)
        return node_objects.matches(selector, node)

    monkeypatch.setattr(pool, "nodes", SimpleNamespace(matches=matches))
    return names


@pytest.mark.parametrize("steps", [1, 2_000, 6_000])
def test_matching_devices_with_nodes_respects_the_budget(steps, matched):
    """If matching were free, 300 nodes and 3,200 devices with 900 values each would take 4 s, even with an exhausted budget."""
    stock, claims = selective(60, 200, values=20), [fleets.claim("c", exactly("gpu"))]
    answers = fleet(stock, claims, options=Options(budget=Budget(steps)))
    assert len(matched) <= 2 * steps
    undecided = [node for node in answers if answers.verdict(node) is Verdict.UNDECIDED]
    assert undecided
    assert {answers[node].error for node in undecided} == {"the budget of steps is spent"}


def test_matched_nodes_are_cached_for_the_next_question(matched):
    stock, claims, memo = selective(60, 200), [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided = [0]
    while decided[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=Options(budget=Budget(6_000)), memo=memo)
        decided.append(sum(answers.verdict(node) is Verdict.FEASIBLE for node in answers))
        assert decided[-1] > decided[-2]
    assert len(decided) > 3
    matched.clear()
    assert len(fleet(stock, [fleets.claim("c", exactly("gpu", count=2))], memo=memo).feasible) == 60
    assert len(matched) < 1_000
    alone = fleet(
        stock.with_object(convert({"metadata": {"name": "n7", "labels": {"host": "other-3-0"}}}, Node)),
        claims,
        memo=memo,
    )
    assert len(alone.equal_nodes()) == 2


def test_nodes_with_equal_selected_labels_are_matched_once(matched):
    """If each node were matched with each selector, 5,000 nodes and 100 pools, one for each zone, would take a second."""
    zones = [
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{n}"]}]}]}
        for n in range(4)
    ]
    stock = Stock.of(
        nodes=[convert({"metadata": {"name": f"n{n}", "labels": {"zone": f"z{n % 4}"}}}, Node) for n in range(200)],
        slices=[slice_(f"s{n}", "d", pool=f"p{n}", nodeSelector=zone) for n, zone in enumerate(zones)],
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )
    answers = fleet(stock, [fleets.claim("c", exactly("gpu"))])
    assert len(answers.feasible) == 200
    assert len(answers.equal_nodes()) == 4
    assert len(matched) == 4 * 4


def long_selector(number):
    return " && ".join([f"device.driver != 'other{number}'"] * 250)[:9000].rpartition(" && ")[0]


def a_hundred_long_selectors():
    """Return the largest claim that an API server stores: 900 KB of selectors. Each takes some hundredths of a second to compile."""
    requests = []
    for number in range(4):
        selectors = [{"cel": {"expression": long_selector(f"{number}-{i}")}} for i in range(25)]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
        requests.append({"name": f"r{number}", "exactly": exactly})
    meta = {"name": "long", "namespace": "default", "uid": "long"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": requests}}}, ResourceClaim)


@pytest.mark.parametrize(
    "ask",
    [fleet, lambda stock, claims, options: allocate(stock, "n0", claims, options=options)],
    ids=["question about the fleet", "question about one node"],
)
def test_reading_selectors_is_charged_before_any_device_is_examined(ask, monkeypatch):
    compiled = []
    real = selector._compile
    monkeypatch.setattr(attributes, "_READ", Cache(8 << 20))  # empties the cache of compiled selectors
    monkeypatch.setattr(selector, "_compile", lambda *key: compiled.append(key[0]) or real(*key))
    class_ = {"metadata": {"name": "gpu"}, "spec": {}}
    stock = Stock.of(nodes=[convert({"metadata": {"name": "n0"}}, Node)], slices=[slice_("a", "x")], classes=[convert(class_, DeviceClass)])  # fmt: skip
    claims = [a_hundred_long_selectors()]
    answer = ask(stock, claims, options=Options(budget=Budget(200_000)))
    verdict = answer.verdict if isinstance(answer, Answer) else answer["n0"].verdict
    assert verdict is Verdict.UNDECIDED
    assert 1 <= len(compiled) <= 4
    first = list(compiled)
    ask(stock, claims, options=Options(budget=Budget(200_000)))
    assert not set(first) & set(compiled[len(first) :]), "the second question compiled selectors again"
