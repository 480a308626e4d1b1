"""Cached answers of a simulation equal new answers."""

import pytest

from allocator.simulation.placement import Placements
from allocator.strategies import best_node, choose_devices
from allocator.strategies.strategy import STRATEGIES
from tests.allocator.fleets import claim, fleet, gpu
from tests.objects import exactly


def ask(strategy):
    return lambda stock, node, claims: choose_devices(stock, node, claims, strategy=strategy)


def stale(strategy):
    """Place pods; return the nodes whose cached answer differs from a new answer."""
    stock = fleet({f"n{i}": (gpu("gpu-0", root="r0"), gpu("gpu-1", root=f"r{i}")) for i in range(3)})
    placements = Placements(stock, ask(strategy))
    wrong = []
    for i in range(6):
        wanted = claim(f"c{i}", exactly("gpu"))
        cached = {
            node: (placement.answer.verdict, placement.score)
            for node, placement in placements.answers([wanted]).items()
        }
        for node, answer in cached.items():
            now = choose_devices(placements.stock, node, [wanted], strategy=strategy)
            wrong += [node] if answer != (now.answer.verdict, now.score) else []
        chosen = placements.answers([wanted])
        placements.hold([wanted], chosen[best_node(chosen)].answer)
    return wrong


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_cached_answer_equals_a_new_answer(strategy):
    assert stale(strategy) == []


class Dishonest(STRATEGIES["CompactFirst"].__class__):
    name = "dishonest"
    seen = 0

    def score(self, view, plan):  # noqa: ARG002
        """Score by the earlier pods, on any node."""
        self.seen += 1
        return float(self.seen)


class Silent(STRATEGIES["CompactFirst"].__class__):
    name = "silent"

    def score(self, view, plan):  # noqa: ARG002
        """Score by the topology, which `looks_at` does not list."""
        return len(view.sites)


def test_a_strategy_that_depends_on_other_nodes_is_detected(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "dishonest", Dishonest())
    assert stale("dishonest")
    monkeypatch.setitem(STRATEGIES, "silent", Silent())
    with pytest.raises(LookupError, match="looks_at"):
        stale("silent")
