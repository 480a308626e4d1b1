"""A replay of pods that arrive, wait, run and end, under a strategy. A stock is the devices and claims that the allocator knows."""

import random

import pytest

from allocator.strategies.choose import choose_devices
from allocator.strategies.strategy import STRATEGIES
from bench.allocator.generate import KINDS
from bench.allocator.replay import Arrival, replay
from tests.allocator.fleets import claim, fleet, gpu, shared
from tests.objects import exactly


def replay_on(stock, *arrivals, strategy="first-fit", **options):
    return replay(stock, arrivals, strategy=strategy, **options)


def arrival(name, at, lasts=None, *, count=1, priority=0):
    return Arrival(name, at, (claim(name, exactly("gpu", count=count)),), lasts, priority)


ONE_GPU_FLEET = fleet({"n0": (gpu("gpu-0"),)})
TWO_GPU_FLEET = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1"))})


def test_a_pod_waits_until_another_leaves():
    result = replay_on(ONE_GPU_FLEET, arrival("a", 0, 10), arrival("b", 4, 10))
    assert (result.placed, result.at_once, result.pending_mean, result.pending_worst) == (2, 1, 3.0, 6.0)
    assert [(sample.at, sample.running, sample.pending) for sample in result.samples] == [
        (0, 1, 0),
        (4, 1, 1),
        (10, 1, 0),
        (20, 0, 0),
    ]


def test_a_pod_that_is_never_placed_is_named():
    result = replay_on(ONE_GPU_FLEET, arrival("a", 0), arrival("b", 1))
    assert result.never == ("b",)


def test_a_pod_gives_up_when_its_patience_ends():
    result = replay_on(ONE_GPU_FLEET, arrival("a", 0, 10), arrival("b", 4, 10), patience=5)
    assert result.never == ("b",)
    assert replay_on(ONE_GPU_FLEET, arrival("a", 0, 10), arrival("b", 4, 10), patience=6).never == ()


def test_higher_priority_is_served_first():
    result = replay_on(ONE_GPU_FLEET, arrival("a", 0, 10), arrival("late", 1, 5), arrival("urgent", 2, 5, priority=1))
    assert result.pending_worst == 14.0
    assert result.pending_mean == pytest.approx((0 + 8 + 14) / 3)


def test_a_small_pod_may_pass_one_that_does_not_fit():
    result = replay_on(TWO_GPU_FLEET, arrival("a", 0, 10), arrival("big", 1, 10, count=2), arrival("small", 2, 3))
    assert result.at_once == 2
    assert result.pending_worst == 9.0


def test_utilisation_and_fragmentation_are_averaged_over_time():
    stock = fleet({"n0": (shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi"))})
    first_pod = Arrival("a", 0, (claim("a", exactly("gpu", memory="40Gi")),), 10)
    last_pod = Arrival("z", 20, (claim("z", exactly("gpu", memory="40Gi")),), 10)
    result = replay_on(stock, first_pod, last_pod)
    # A quarter of the fleet is in use for half of the time. In that time, a third of the free memory is on the GPU in use.
    assert result.utilisation == pytest.approx(0.125)
    assert result.fragmentation == pytest.approx(1 / 6)


def test_no_device_is_held_after_all_pods_have_left():
    workload = KINDS["mig"](random.Random(3).random, nodes=1, pods=40, load=1.5)
    result = replay(workload.stock, workload.arrivals, strategy="CompactFirst", patience=50.0)
    last = result.samples[-1]
    assert (last.running, last.utilisation) == (0, 0.0)
    assert result.placed + len(result.never) == 40


def test_a_replay_without_arrivals_has_no_utilisation():
    result = replay_on(ONE_GPU_FLEET)
    assert (result.pods, result.utilisation, result.samples) == (0, 0.0, ())


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_workloads_and_different_seeds_do_not(kind):
    first, repeated, different = (
        [
            (drawn.at, drawn.claims, drawn.lasts)
            for drawn in KINDS[kind](random.Random(seed).random, nodes=2, pods=20).arrivals
        ]
        for seed in (1, 1, 2)
    )
    assert first == repeated
    assert first != different


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_fits_an_idle_fleet_under_every_strategy(kind, strategy):
    workload = KINDS[kind](random.Random(7).random, nodes=1, pods=12)
    for drawn in workload.arrivals:
        assert choose_devices(workload.stock, "node-00", drawn.claims, strategy=strategy).answer.feasible


def test_compact_first_uses_more_hardware_than_first_fit():
    workload = KINDS["mig"](random.Random(5).random, nodes=1, pods=80, load=1.4)
    utilisation = {
        strategy: replay(workload.stock, workload.arrivals, strategy=strategy, patience=0).utilisation
        for strategy in ("first-fit", "CompactFirst")
    }
    assert utilisation["CompactFirst"] > utilisation["first-fit"]
