"""Caches do not grow with the number of different questions."""

from allocator import FleetMemo, fleet
from allocator.strategies import StrategyCache, choose_devices
from tests.allocator import fleets
from tests.objects import exactly

QUESTIONS = 300


def two_nodes_with_shared_gpus():
    return fleets.fleet({f"n{node}": [fleets.shared(f"gpu-{i}", "80Gi") for i in range(2)] for node in range(2)})


def numbered_question(number):
    return [fleets.claim("c", exactly("gpu", memory=str(1000 + number)))]


def test_a_fleet_memo_keeps_a_bounded_number_of_questions():
    memo, fleet_stock = FleetMemo(), two_nodes_with_shared_gpus()
    for number in range(QUESTIONS):
        fleet(fleet_stock, numbered_question(number), memo=memo)
    assert len(memo) == 64  # the maximum
    assert memo.pages.cells < 200


def test_a_strategy_cache_keeps_a_bounded_number_of_questions():
    fleet_stock = two_nodes_with_shared_gpus()
    cache = StrategyCache()
    for number in range(QUESTIONS):
        choose_devices(fleet_stock, "n0", numbered_question(number), strategy="CompactFirst", cache=cache)
    assert len(cache._compiled) == 64  # the maximum
