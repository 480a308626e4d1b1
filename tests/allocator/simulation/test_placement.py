"""A simulation caches answers for nodes that have not changed: cached answers equal new answers."""

from collections import Counter

import pytest

from allocator import SearchOptions
from allocator.answer import as_granted
from allocator.decisions import Decider
from allocator.simulation.snapshot import Snapshot, simulate
from allocator.strategies import choose_devices, read_placement
from allocator.strategies.node_view import LooksAt
from allocator.strategies.strategy import STRATEGIES
from tests.allocator.fleets import claim, fleet, gpu, taken
from tests.allocator.simulation.scenes import ONE_GPU_TEMPLATE, pending_pod
from tests.objects import exactly


class SpreadRacks(STRATEGIES["CompactFirst"].__class__):
    """Prefers the rack in which the fewest claims hold devices."""

    name = "SpreadRacks"
    looks_at = LooksAt.FLEET

    def score(self, view, plan):  # noqa: ARG002
        stock, node = view.fleet
        rack = stock.nodes[node].metadata.labels.get("rack", "")
        in_rack = [name for name in stock.nodes if stock.nodes[name].metadata.labels.get("rack", "") == rack]
        return 100.0 - sum(len(stock.use(pool.id).dedicated) for name in in_rack for pool in stock.pools(name))


def nodes_with_stale_answers(strategy):
    """Place six pods, one after the other; return the nodes whose cached answer differs from a new answer."""
    stock = fleet({f"n{i}": (gpu("gpu-0", root="r0"), gpu("gpu-1", root=f"r{i}")) for i in range(3)})
    decider, placement = Decider(SearchOptions()), read_placement(strategy)
    stale_nodes = []
    for i in range(6):
        claims = [claim(f"c{i}", exactly("gpu"))]
        scores = decider.scores(decider.search_fleet(stock, claims), stock, claims, placement)
        new_answers = {node: choose_devices(stock, node, claims, strategy=strategy) for node in stock.nodes}
        new_scores = {node: chosen.score for node, chosen in new_answers.items() if chosen.answer.feasible}
        stale_nodes += [node for node in stock.nodes if scores.get(node) != new_scores.get(node)]
        chosen_node = max(scores, key=scores.get)
        stock = stock.with_all(as_granted(claims, decider.choose_on(chosen_node, stock, claims, placement).answer))
    return stale_nodes


@pytest.mark.parametrize("strategy", [*STRATEGIES, SpreadRacks.name])
def test_a_cached_answer_equals_a_new_answer(monkeypatch, strategy):
    monkeypatch.setitem(STRATEGIES, SpreadRacks.name, SpreadRacks())
    assert nodes_with_stale_answers(strategy) == []


@pytest.mark.parametrize("strategy", [SpreadRacks.name, "CompactFirst"])
def test_a_strategy_that_spreads_racks_uses_all_racks(monkeypatch, strategy):
    """Six pods get six of twelve nodes in three racks. CompactFirst, as a counter-example, fills the first rack."""
    monkeypatch.setitem(STRATEGIES, SpreadRacks.name, SpreadRacks())
    racks = {f"n{i:02}": {"rack": f"r{i // 4}"} for i in range(12)}
    pods = [pending_pod(f"p{i}", templates=["single"]) for i in range(6)]
    stock = fleet({node: (gpu("gpu-0"),) for node in racks}, labels=racks)
    snapshot = Snapshot(stock, tuple(pods), templates=(ONE_GPU_TEMPLATE,))
    simulated = simulate(snapshot, Decider(), read_placement(strategy))
    used_racks = Counter(racks[outcome.node]["rack"] for outcome in simulated.pods)
    assert used_racks == ({"r0": 2, "r1": 2, "r2": 2} if strategy == SpreadRacks.name else {"r0": 4, "r1": 2})


class ScoresByEarlierCalls(STRATEGIES["CompactFirst"].__class__):
    name = "by-earlier-calls"
    calls = 0

    def score(self, view, plan):  # noqa: ARG002
        """Score by the number of earlier calls, whatever their node."""
        self.calls += 1
        return float(self.calls)


class ScoresByTopology(STRATEGIES["CompactFirst"].__class__):
    name = "by-topology"

    def score(self, view, plan):  # noqa: ARG002
        """Score by the topology, which the strategy's `looks_at` does not list."""
        return len(view.sites)


class SpreadsRacksUndeclared(SpreadRacks):
    looks_at = LooksAt.SITES


def test_a_strategy_that_reads_undeclared_data_is_detected(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "by-earlier-calls", ScoresByEarlierCalls())
    assert nodes_with_stale_answers("by-earlier-calls")
    monkeypatch.setitem(STRATEGIES, "by-topology", ScoresByTopology())
    monkeypatch.setitem(STRATEGIES, SpreadRacks.name, SpreadsRacksUndeclared())
    for strategy in ("by-topology", SpreadRacks.name):
        with pytest.raises(LookupError, match="looks_at"):
            nodes_with_stale_answers(strategy)


def test_a_simulation_scores_every_kind_of_node(monkeypatch):
    monkeypatch.setattr("allocator.decisions.decider.MAX_SCORED", 1)
    stock = fleet({node: (gpu("gpu-0"), gpu("gpu-1")) for node in ("n0", "n1")}, taken("n1", "gpu-0"))
    snapshot = Snapshot(stock, (pending_pod("p", templates=["single"]),), templates=(ONE_GPU_TEMPLATE,))
    [outcome] = simulate(snapshot, Decider(SearchOptions()), read_placement("CompactFirst")).pods
    assert outcome.node == "n1"
