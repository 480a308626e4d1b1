"""The budget of a question about all nodes: every step is charged, and an interrupted question continues where it stopped."""

from types import SimpleNamespace

import pytest

from allocator import FleetMemo, NodeAnswer, SearchOptions, SearchVerdict, allocate, fleet
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


def test_a_large_node_leaves_budget_to_the_other_nodes():
    small_nodes = {f"n{n}": [fleets.gpu("a", memory="80Gi")] for n in range(9)}
    devices_of_large_node = [fleets.gpu(f"g{i}", memory=f"{i + 1}Mi") for i in range(2_000)]
    stock = fleets.fleet({"large": devices_of_large_node} | small_nodes)
    claims = [
        fleets.claim(
            "c",
            exactly("gpu", selector=f'device.capacity["{fleets.DRIVER}"].memory.compareTo(quantity("1Gi")) > 0'),
        )
    ]
    answers = fleet(stock, claims, options=SearchOptions(budget=Budget(5_000)))
    assert answers.verdict("large") is SearchVerdict.UNDECIDED
    assert sorted(answers.feasible) == sorted(small_nodes)
    assert list(answers) == list(stock.nodes)


def options_with_patience(checks):
    """Return options with a budget that is out of time after a number of checks."""
    remaining_checks = iter(range(checks))
    return SearchOptions(budget=Budget(is_out_of_time=lambda: next(remaining_checks, None) is None))


def test_an_unexamined_node_is_undecided():
    """Kubernetes cannot parse the node selector of a slice. Before the allocator has read the selector, the node is undecided."""
    unparsable = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Maybe", "values": ["a"]}]}]}
    stock = fleets.fleet({"n0": [fleets.gpu("a")]}).with_object(slice_("s", "x", nodeSelector=unparsable))
    claims = [fleets.claim("c", exactly("gpu"))]
    out_of_time = SearchOptions(budget=Budget(10**9, lambda: True))
    assert fleet(stock, claims, options=out_of_time)["n0"].verdict is SearchVerdict.UNDECIDED
    assert fleet(stock, claims)["n0"].verdict is SearchVerdict.ERROR


def test_a_question_about_a_fleet_resumes_where_time_ran_out():
    """To read all slices of 5,000 nodes takes 34 ms, but the budget is 7 ms, so reading must not precede all answers."""
    stock = fleets.fleet({f"n{n:03}": [fleets.gpu("a")] for n in range(300)})
    claims, memo = [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided_counts = [0]
    while decided_counts[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=options_with_patience(4), memo=memo)
        decided_counts.append(sum(answers.verdict(node) is not SearchVerdict.UNDECIDED for node in answers))
        # Between two checks of the time, the allocator decides at most 32 nodes.
        assert 0 < decided_counts[-1] - decided_counts[-2] <= 4 * 32
        node_already_decided = f"n{len(decided_counts):03}"
        stock = stock.with_object(fleets.taken(node_already_decided, "a"))
    assert len(decided_counts) > 3
    patient_answers = fleet(stock, claims)
    answers = fleet(stock, claims, memo=memo)
    assert {node: answers.verdict(node) for node in answers} == {
        node: patient_answers.verdict(node) for node in patient_answers
    }
    assert [node for node in answers if answers.verdict(node) is SearchVerdict.UNDECIDED] == []
    assert len(patient_answers.feasible) == 300 - len(decided_counts) + 1


def fleet_of_selective_devices(nodes, devices, values_per_selector=1):
    """Return a fleet in which each device has a node selector of its own, on a label that differs on every node."""

    def select_other_hosts(number):
        host_names = [f"other-{number}-{i}" for i in range(values_per_selector)]
        return {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": host_names}]}]
        }

    numbers_by_slice = [range(i, min(i + 100, devices)) for i in range(0, devices, 100)]
    return Stock.of(
        nodes=[convert({"metadata": {"name": f"n{n}", "labels": {"host": f"h{n}"}}}, Node) for n in range(nodes)],
        slices=[
            slice_(
                f"s{numbers[0]}",
                *[{"name": f"d{n}", "nodeSelector": select_other_hosts(n)} for n in numbers],
                count=len(numbers_by_slice),
                perDeviceNodeSelection=True,
            )
            for numbers in numbers_by_slice
        ],
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )


def test_matching_node_selectors_of_devices_counts_toward_the_budget():
    """The allocator matches each selector with each node. For 32 nodes and 3,200 devices this takes 0.4 s."""
    stock = fleet_of_selective_devices(100, 128)
    answers = fleet(stock, [fleets.claim("c", exactly("gpu"))], options=options_with_patience(20))
    assert 20 <= sum(answers.verdict(node) is SearchVerdict.FEASIBLE for node in answers) <= 20 * 4


@pytest.fixture
def matched_nodes(monkeypatch):
    """Record the name of a node for each match of the node with a device or slice."""
    names = []

    def matches(selector, node):
        names.append(node.metadata.name)
        return node_objects.matches(selector, node)

    monkeypatch.setattr(pool, "nodes", SimpleNamespace(matches=matches))
    return names


@pytest.mark.parametrize("steps", [1, 2_000, 6_000])
def test_matching_devices_with_nodes_respects_the_budget(steps, matched_nodes):
    """If matching were free, 300 nodes and 3,200 devices with 900 values each would take 4 s, even with an exhausted budget."""
    stock, claims = fleet_of_selective_devices(60, 200, values_per_selector=20), [fleets.claim("c", exactly("gpu"))]
    answers = fleet(stock, claims, options=SearchOptions(budget=Budget(steps)))
    assert len(matched_nodes) <= 2 * steps
    undecided = [node for node in answers if answers.verdict(node) is SearchVerdict.UNDECIDED]
    assert undecided
    assert {answers[node].error for node in undecided} == {"the budget of steps is spent"}


def test_the_next_question_reuses_which_devices_match_which_nodes(matched_nodes):
    stock, claims, memo = fleet_of_selective_devices(60, 200), [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided_counts = [0]
    while decided_counts[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=SearchOptions(budget=Budget(6_000)), memo=memo)
        decided_counts.append(sum(answers.verdict(node) is SearchVerdict.FEASIBLE for node in answers))
        assert decided_counts[-1] > decided_counts[-2]
    assert len(decided_counts) > 3
    matched_nodes.clear()
    assert len(fleet(stock, [fleets.claim("c", exactly("gpu", count=2))], memo=memo).feasible) == 60
    assert len(matched_nodes) < 1_000
    answers_after_change = fleet(
        stock.with_object(convert({"metadata": {"name": "n7", "labels": {"host": "other-3-0"}}}, Node)),
        claims,
        memo=memo,
    )
    assert len(answers_after_change.equal_nodes()) == 2


def test_nodes_with_equal_selected_labels_are_matched_once(matched_nodes):
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
    assert len(matched_nodes) == 4 * 4


def long_selector(suffix):
    """Return a selector of almost 9,000 bytes."""
    return " && ".join([f"device.driver != 'other{suffix}'"] * 250)[:9000].rpartition(" && ")[0]


def claim_with_a_hundred_long_selectors():
    """Return the largest claim that an API server stores: 900 KB of selectors. Each takes some hundredths of a second to compile."""
    requests = []
    for number in range(4):
        selectors = [{"cel": {"expression": long_selector(f"{number}-{i}")}} for i in range(25)]
        request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
        requests.append({"name": f"r{number}", "exactly": request})
    meta = {"name": "long", "namespace": "default", "uid": "long"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": requests}}}, ResourceClaim)


@pytest.mark.parametrize(
    "ask",
    [fleet, lambda stock, claims, options: allocate(stock, "n0", claims, options=options)],
    ids=["question about the fleet", "question about one node"],
)
def test_reading_selectors_is_charged_before_any_device_is_examined(ask, monkeypatch):
    compiled_selectors = []
    compile_selector = selector._compile
    monkeypatch.setattr(attributes, "_READ", Cache(8 << 20))  # empties the cache of compiled selectors
    monkeypatch.setattr(selector, "_compile", lambda *key: compiled_selectors.append(key[0]) or compile_selector(*key))
    device_class = {"metadata": {"name": "gpu"}, "spec": {}}
    stock = Stock.of(nodes=[convert({"metadata": {"name": "n0"}}, Node)], slices=[slice_("a", "x")], classes=[convert(device_class, DeviceClass)])  # fmt: skip
    claims = [claim_with_a_hundred_long_selectors()]
    answer = ask(stock, claims, options=SearchOptions(budget=Budget(200_000)))
    verdict = answer.verdict if isinstance(answer, NodeAnswer) else answer["n0"].verdict
    assert verdict is SearchVerdict.UNDECIDED
    assert 1 <= len(compiled_selectors) <= 4
    first_selectors = list(compiled_selectors)
    ask(stock, claims, options=SearchOptions(budget=Budget(200_000)))
    assert not set(first_selectors) & set(compiled_selectors[len(first_selectors) :]), (
        "the second question compiled selectors again"
    )
