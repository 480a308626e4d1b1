"""A simulation caches answers for nodes that have not changed: cached answers equal new answers."""

import pytest

from allocator.simulation.placement import Placements
from allocator.strategies import best_node, choose_devices
from allocator.strategies.strategy import STRATEGIES
from tests.allocator.fleets import claim, fleet, gpu
from tests.objects import exactly


def device_chooser(strategy):
    return lambda stock, node, claims: choose_devices(stock, node, claims, strategy=strategy)


def nodes_with_stale_answers(strategy):
    """Place six pods, one after the other; return the nodes whose cached answer differs from a new answer."""
    stock = fleet({f"n{i}": (gpu("gpu-0", root="r0"), gpu("gpu-1", root=f"r{i}")) for i in range(3)})
    placements = Placements(stock, device_chooser(strategy))
    stale_nodes = []
    for i in range(6):
        claim_of_pod = claim(f"c{i}", exactly("gpu"))
        cached_answers = {
            node: (placement.answer.verdict, placement.score)
            for node, placement in placements.answers([claim_of_pod]).items()
        }
        for node, answer in cached_answers.items():
            new_answer = choose_devices(placements.stock, node, [claim_of_pod], strategy=strategy)
            stale_nodes += [node] if answer != (new_answer.answer.verdict, new_answer.score) else []
        chosen = placements.answers([claim_of_pod])
        placements.hold([claim_of_pod], chosen[best_node(chosen)].answer)
    return stale_nodes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cached_answer_equals_a_new_answer(strategy):
    assert nodes_with_stale_answers(strategy) == []


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


def test_a_strategy_that_reads_undeclared_data_is_detected(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "by-earlier-calls", ScoresByEarlierCalls())
    assert nodes_with_stale_answers("by-earlier-calls")
    monkeypatch.setitem(STRATEGIES, "by-topology", ScoresByTopology())
    with pytest.raises(LookupError, match="looks_at"):
        nodes_with_stale_answers("by-topology")
