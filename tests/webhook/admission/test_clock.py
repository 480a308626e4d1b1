"""A decision does not depend on the load of the machine: a slow machine makes the same decision, or reports a timeout."""

import json

import pytest

from allocator import FleetMemo
from dra import wire
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import DeviceTaintRule
from tests.loops import every
from tests.webhook.admission.fleets import DRIVER, claim_for, stock, typed_class
from tests.webhook.admission.reviews import gpu_pod, review, state
from tests.webhook.admission.test_parameters import WRONG_PARAMETERS, pod_with_own_claim, spec
from webhook.admission import review as admission
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import NO_TIME, UNKNOWN, Feasibility
from webhook.service.decider import ReviewDecider

EMPTY_CLASS = typed_class("none", "false")
SELECTOR, TAINT = {"driver": DRIVER, "device": "gpu-3"}, {"key": "m", "effect": "NoSchedule"}
RULE = wire.convert({"metadata": {"name": "m"}, "spec": {"deviceSelector": SELECTOR, "taint": TAINT}}, DeviceTaintRule)
QUESTIONS = {
    "fits": (stock(), [claim_for()]),
    "too many": (stock(count=8), [claim_for(20)]),
    "a sum": (stock(count=8), [claim_for(name=f"c{index}") for index in range(12)]),
    "two different claims": (stock(), [claim_for(2), claim_for(3, name="d", cel="true")]),
    "an empty class": (stock(EMPTY_CLASS), [claim_for(class_="none")]),
    "two classes": (stock(EMPTY_CLASS), [claim_for(3), claim_for(2, name="d", class_="none")]),
    "a selector": (stock(), [claim_for(cel=f"device.attributes['{DRIVER}'].productName == 'x'")]),
    "a constraint": (stock(), [claim_for(2, requests=["r"], matchAttribute="x/y")]),
    "busy": (stock(claim_for(1, name="held", held_devices=["gpu-0", "gpu-1"]), nodes=("n0",)), [claim_for(3)]),
    "a tainted device": (stock(RULE, nodes=("n0",)), [claim_for(4)]),
}


class IsOutOfTime:
    """A function `is_out_of_time` that returns True after a number of calls."""

    def __init__(self, calls):
        self.left = calls
        self.ended = False

    def __call__(self):
        self.left -= 1
        self.ended = self.ended or self.left < 0
        return self.left < 0


def judged(fleet, claims, budget, **options):
    """Return the judgement; UNKNOWN if the budget ended."""
    try:
        return can_any_node_serve(fleet, claims, budget=budget, **options)
    except OutOfBudget:
        return UNKNOWN


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_interrupted_verdict_never_contradicts_the_full_verdict(name):
    fleet, claims = QUESTIONS[name]
    full_judgement = can_any_node_serve(fleet, claims)
    verdicts = set()
    for checks in range(10_000):
        clock = IsOutOfTime(checks)
        budget = Budget(1_000_000, clock)
        judgement = judged(fleet, claims, budget)
        assert budget.is_late == clock.ended
        if not clock.ended:
            break
        verdicts.add(judgement.verdict)
        if judgement.verdict is Feasibility.NEVER:
            assert full_judgement.verdict is Feasibility.NEVER
            assert (judgement.code, judgement.claim) == (full_judgement.code, full_judgement.claim)
            assert judgement.text.split(": ")[0] == full_judgement.text.split(": ")[0]
            assert judgement == full_judgement or judgement.remedy == NO_TIME
    assert judgement == full_judgement
    assert Feasibility.UNKNOWN in verdicts
    # For a number of devices, the verdict and its reason are found in one step.
    if full_judgement.verdict is Feasibility.NEVER and name not in ("a sum", "too many"):
        assert Feasibility.NEVER in verdicts, "the verdict NEVER is lost if no time is left for its message"


@pytest.mark.parametrize("name", QUESTIONS)
def test_cached_facts_of_earlier_searches_do_not_change_a_verdict(name):
    """Cached facts save steps of the budget."""
    fleet, claims = QUESTIONS[name]
    memo = FleetMemo()
    full_judgement = can_any_node_serve(fleet, claims)
    for steps in (20, 200, 2_000, 20_000, 200_000):
        for _ in range(2):
            judgement = judged(fleet, claims, Budget(steps), memo=memo)
            assert judgement == full_judgement or judgement.verdict is Feasibility.UNKNOWN


class Clock:
    """A clock that advances by a fixed amount at each call, as on a slow machine."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


PODS = {
    "fits": gpu_pod(),
    "parameters that a driver refuses": pod_with_own_claim(),
    "too many": gpu_pod(limits={"nvidia.com/gpu": "16"}),
    "as many as there are": gpu_pod(limits={"nvidia.com/gpu": "4"}),
}
STATES = {
    mode: state(mode=mode, templates={("ns", "t"): spec(WRONG_PARAMETERS)}) for mode in ("enforce", "observe", "warn")
}
# Seconds between two checks of the clock. A budget checks the clock every 256 steps; at the intended speed, a step takes 1 µs.
SPEEDS = [256e-6 * speed for speed in (1 / 50, 1, 50, 250, 400, 600, 900, 1_300, 2_000, 4_000)]


@every("mode", STATES)
@every("name", PODS)
def test_a_slow_machine_decides_equally_or_reports_a_timeout(name, mode):
    world, body = STATES[mode], review(PODS[name])
    full_outcome = admission.decide_review("mutate", body, world)
    late_outcomes = 0
    assert bool(full_outcome.record.problems) == (name in ("too many", "parameters that a driver refuses"))
    for step in SPEEDS:
        decider = ReviewDecider(None, None, clock=Clock(step))
        for _ in range(3):
            outcome_of_review = decider.decide("mutate", body, world, 1.0)
            late_outcomes += outcome_of_review.is_late
            if not outcome_of_review.is_late:
                assert outcome_of_review == full_outcome
                continue
            outcome = outcome_of_review.record.outcome
            assert outcome == "undecided" or (
                outcome == full_outcome.record.outcome and outcome in ("refused", "would refuse")
            )
            response = json.loads(outcome_of_review.body)["response"]
            if outcome == "would refuse":
                continue
            if outcome == "refused":
                assert NO_TIME in response["status"]["message"]
            elif mode != "observe":
                assert any("in time" in text for text in response["warnings"])
    assert late_outcomes
