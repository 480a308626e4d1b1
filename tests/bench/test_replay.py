"""Replaying pods that come and go."""

import random

import pytest

from allocator.strategies.choose import choose_devices
from allocator.strategies.strategy import STRATEGIES
from bench.allocator.generate import KINDS
from bench.allocator.replay import Arrival, replay
from tests.allocator.fleets import claim, fleet, gpu, shared
from tests.objects import exactly


def ask(strategy):
    return lambda stock, node, claims: choose_devices(stock, node, claims, strategy=strategy)


def play(stock, *arrivals, strategy="first-fit", **more):
    return replay(stock, arrivals, strategy=strategy, ask=ask(strategy), **more)


def arrival(name, at, lasts=None, *, count=1, priority=0):
    return Arrival(name, at, (claim(name, exactly("gpu", count=count)),), lasts, priority)


ONE = fleet({"n0": (gpu("gpu-0"),)})
TWO = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))})


def test_a_pod_waits_until_another_leaves():
    found = play(ONE, arrival("a", 0, 10), arrival("b", 4, 10))
    assert (found.placed, found.at_once, found.pending_mean, found.pending_worst) == (2, 1, 3.0, 6.0)
    assert [(sample.at, sample.running, sample.pending) for sample in found.samples] == [
        (0, 1, 0),
        (4, 1, 1),
        (10, 1, 0),
        (20, 0, 0),
    ]


def test_a_pod_that_never_finds_a_place_is_named():
    found = play(ONE, arrival("a", 0), arrival("b", 1))
    assert found.never == ("b",)


def test_a_pod_without_patience_gives_up():
    found = play(ONE, arrival("a", 0, 10), arrival("b", 4, 10), patience=5)
    assert found.never == ("b",)
    assert play(ONE, arrival("a", 0, 10), arrival("b", 4, 10), patience=6).never == ()


def test_higher_priority_is_served_first():
    found = play(ONE, arrival("a", 0, 10), arrival("late", 1, 5), arrival("urgent", 2, 5, priority=1))
    assert found.pending_worst == 14.0
    assert found.pending_mean == pytest.approx((0 + 8 + 14) / 3)


def test_a_small_pod_may_pass_one_that_does_not_fit():
    found = play(TWO, arrival("a", 0, 10), arrival("big", 1, 10, count=2), arrival("small", 2, 3))
    assert found.at_once == 2
    assert found.pending_worst == 9.0


def test_use_and_breakage_are_averaged_over_time():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    half = Arrival("a", 0, (claim("a", exactly("gpu", memory="40Gi")),), 10)
    end = Arrival("z", 20, (claim("z", exactly("gpu", memory="40Gi")),), 10)
    found = play(stock, half, end)
    # A quarter of the fleet for half of the time; a third of the free memory is on the GPU in use.
    assert found.utilisation == pytest.approx(0.125)
    assert found.fragmentation == pytest.approx(1 / 6)


def test_no_device_is_held_after_all_pods_have_left():
    workload = KINDS["mig"](random.Random(3).random, nodes=1, pods=40, load=1.5)
    found = replay(workload.stock, workload.arrivals, strategy="CompactFirst", ask=ask("CompactFirst"), patience=50.0)
    last = found.samples[-1]
    assert (last.running, last.utilisation) == (0, 0.0)
    assert found.placed + len(found.never) == 40


def test_no_arrivals_are_no_use():
    found = play(ONE)
    assert (found.pods, found.utilisation, found.samples) == (0, 0.0, ())


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_workloads_and_other_seeds_others(kind):
    one, same, other = (
        [(a.at, a.claims, a.lasts) for a in KINDS[kind](random.Random(seed).random, nodes=2, pods=20).arrivals]
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_fits_an_idle_fleet_under_every_strategy(kind, strategy):
    workload = KINDS[kind](random.Random(7).random, nodes=1, pods=12)
    for arrival in workload.arrivals:
        assert choose_devices(workload.stock, "node-00", arrival.claims, strategy=strategy).answer.feasible


def test_packing_partitions_uses_more_hardware_than_first_fit():
    workload = KINDS["mig"](random.Random(5).random, nodes=1, pods=80, load=1.4)
    use = {
        strategy: replay(
            workload.stock, workload.arrivals, strategy=strategy, ask=ask(strategy), patience=0
        ).utilisation
        for strategy in ("first-fit", "least-fragmentation")
    }
    assert use["least-fragmentation"] > use["first-fit"]
