"""Pods between allocation and binding: kube-scheduler and our scheduler, with drivers that attach devices, fail, or are late.

Each random case is played twice at once, on nodes of its own: the same devices with binding conditions (KEP-5007), pods, driver
answers and interventions. kube-scheduler's outcome is the expected one. Our scheduler may not take much longer.
"""

import os

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import Bridge
from e2e.bridge.trials import CLASS, DRIVER, LANES, STOCK, TIMEOUT, Case, play, refusing_policy
from e2e.ground.controlplane import GROUP_GATES, ControlPlane

pytestmark = pytest.mark.real

BACKOFF = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}


@pytest.fixture(scope="module")
def stage():
    """A control plane with both schedulers, which wait equally long for devices to be ready."""
    with ControlPlane(name="binding", feature_gates=GROUP_GATES) as cluster:
        bridge = Bridge(cluster)
        try:
            bridge.prepare()
            bridge.start(binding_timeout=TIMEOUT)
            bridge.start_scheduler()
            arguments = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "DynamicResourcesArgs",
                "bindingTimeout": f"{TIMEOUT}s",
            }
            profile = {"schedulerName": STOCK, "pluginConfig": [{"name": "DynamicResources", "args": arguments}]}
            cluster.start_scheduler({"profiles": [profile]} | BACKOFF, name="binding-stock")
            cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"), *refusing_policy())
            yield cluster
        finally:
            bridge.remove()


def is_late(trials, trial):
    """Return whether the load of this machine decided the outcome of a trial, or of kube-scheduler's trial of that case."""
    return trial.late_driver or trials[trial.case.name, "stock"].late_driver


def differing_trials(trials, outcomes):
    """Yield the trials of our schedulers that end differently from kube-scheduler's, or take much longer."""
    trial_of = {(trial.case.name, trial.lane): trial for trial in trials}
    for trial in trials:
        if trial.lane == "stock":
            continue
        stock = trial_of[trial.case.name, "stock"]
        if is_late(trial_of, trial):
            continue
        stock_outcome, our_outcome = outcomes[stock.case.name, "stock"], outcomes[trial.case.name, trial.lane]
        times = {lane.lane: [round(seconds, 1) for seconds in lane.bound.values()] for lane in (stock, trial)}
        worse = [name for name in our_outcome if our_outcome[name] != stock_outcome[name] and not (stock_outcome[name] == "waits" and our_outcome[name] == "bound")]  # fmt: skip
        if worse:
            yield (
                trial.case.name,
                f"{trial.case!r}; {trial.lane}: {our_outcome}, kube-scheduler: {stock_outcome}, {times}, {trial.last_events}",
            )
        elif stock.bound and trial.bound and max(trial.bound.values()) > 2 * max(stock.bound.values()) + 5:
            yield trial.case.name, f"{trial.case!r}; {trial.lane} is late: {times}"


@pytest.mark.timeout(1800)
def test_placement_equals_kube_scheduler_for_any_device_binding_conditions(stage):
    first, total, at_once = (int(os.environ.get(f"BINDING_{name}", default)) for name, default in (("FIRST", 0), ("CASES", 24), ("EACH", 24)))  # fmt: skip
    undecided = []
    for start in range(first, first + total, at_once):
        undecided += compare(stage, range(start, min(start + at_once, first + total)), [])
    # Repeat the cases that differ or that the load of this machine decided, fewer at a time.
    faults, late = [], []
    few = max(1, at_once // 3)
    for start in range(0, len(undecided), few):
        late += compare(stage, undecided[start : start + few], faults, "x")
    assert not faults, "\n".join(faults)
    assert len(late) <= 2 * total // 3, f"this machine was too slow to compare the cases {late}"


def compare(stage, numbers, faults, suffix=""):
    """Play cases, add faults to `wrong`, and return the cases that differ or could not be compared."""
    trials, outcomes = play(stage, [Case(number, suffix) for number in numbers])
    differing = list(differing_trials(trials, outcomes))
    faults += [text for _, text in differing]
    for lane in LANES:
        times = [round(max(trial.bound.values()), 1) for trial in trials if trial.lane == lane and trial.bound]
        print(
            f"{lane}: {len(times)} cases with bound pods, median and last {sorted(times)[len(times) // 2 :: max(1, len(times) // 2)]} s"
        )
    trial_of = {(trial.case.name, trial.lane): trial for trial in trials}
    late = {trial.case.name for trial in trials if is_late(trial_of, trial)}
    print(f"{len(numbers)} cases, not compared: {sorted(late)}", *[text for _, text in differing], sep="\n")
    late.update(name for name, _ in differing)
    return [number for number in numbers if f"b{number}{suffix}" in late]
