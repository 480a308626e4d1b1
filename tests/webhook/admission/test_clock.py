"""A decision does not depend on the load of the machine: it is the same decision, or reports that the time ended."""

import json

import pytest

from allocator import FleetMemo
from dra import wire
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import DeviceTaintRule
from tests.webhook.admission.fleets import DRIVER, claim_for, stock, typed_class
from tests.webhook.admission.reviews import gpu_pod, review, state
from tests.webhook.admission.test_parameters import WRONG, pod_with_own_claim, spec
from webhook.admission import review as admission
from webhook.admission.feasibility import NO_TIME, UNKNOWN, Feasibility, judge
from webhook.service.decider import ReviewDecider

MORE = typed_class("none", "false")
TAINT = wire.convert(
    {
        "metadata": {"name": "drain"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "device": "gpu-3"},
            "taint": {"key": "m", "effect": "NoSchedule"},
        },
    },
    DeviceTaintRule,
)
QUESTIONS = {
    "fits": (stock(), [claim_for()]),
    "more than there is": (stock(count=8), [claim_for(20)]),
    "a sum": (stock(count=8), [claim_for(name=f"c{at}") for at in range(12)]),
    "tied": (stock(), [claim_for(2), claim_for(3, name="d", cel="true")]),
    "another class": (stock(MORE), [claim_for(class_="none")]),
    "two classes": (stock(MORE), [claim_for(3), claim_for(2, name="d", class_="none")]),
    "a selector": (stock(), [claim_for(cel=f"device.attributes['{DRIVER}'].productName == 'x'")]),
    "a constraint": (stock(), [claim_for(2, requests=["r"], matchAttribute="x/y")]),
    "busy": (stock(claim_for(1, name="held", held=["gpu-0", "gpu-1"]), nodes=("n0",)), [claim_for(3)]),
    "curable": (stock(TAINT, nodes=("n0",)), [claim_for(4)]),
}


class IsOutOfTime:
    """An `is_out_of_time` that returns True after a number of calls."""

    def __init__(self, looks):
        self.left = looks
        self.ended = False

    def __call__(self):
        self.left -= 1
        self.ended = self.ended or self.left < 0
        return self.left < 0


def judged(fleet, claims, budget, **more):
    """Return the judgement; None if the question ended early."""
    try:
        return judge(fleet, claims, budget=budget, **more)
    except OutOfBudget:
        return UNKNOWN


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_verdict_cut_short_never_contradicts_the_full_verdict(name):
    fleet, claims = QUESTIONS[name]
    whole = judge(fleet, claims)
    ends = set()
    for looks in range(10_000):
        clock = IsOutOfTime(looks)
        budget = Budget(1_000_000, clock)
        judgement = judged(fleet, claims, budget)
        assert budget.is_late == clock.ended
        if not clock.ended:
            break
        ends.add(judgement.verdict)
        if judgement.verdict is Feasibility.NEVER:
            assert whole.verdict is Feasibility.NEVER
            assert (judgement.code, judgement.claim) == (whole.code, whole.claim)
            assert judgement.text.split(": ")[0] == whole.text.split(": ")[0]
            assert judgement == whole or judgement.remedy == NO_TIME
    assert judgement == whole
    assert Feasibility.UNKNOWN in ends
    if whole.verdict is Feasibility.NEVER and name != "a sum":  # its message names the reason of the decision
        assert Feasibility.NEVER in ends, "the verdict is found although no time is left for its message"


@pytest.mark.parametrize("name", QUESTIONS)
def test_facts_remembered_from_earlier_searches_do_not_change_an_answer(name):
    """Remembered facts save steps of the budget."""
    fleet, claims = QUESTIONS[name]
    memo = FleetMemo()
    whole = judge(fleet, claims)
    for steps in (20, 200, 2_000, 20_000, 200_000):
        for _ in range(2):
            judgement = judged(fleet, claims, Budget(steps), memo=memo)
            assert judgement == whole or judgement.verdict is Feasibility.UNKNOWN


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
MODES = {mode: state(mode=mode, templates={("ns", "t"): spec(WRONG)}) for mode in ("enforce", "observe", "warn")}
# Seconds between two checks of the clock. A budget checks it every 256 steps, and a step takes 1 µs at the intended speed.
SPEEDS = [256e-6 * speed for speed in (1 / 50, 1, 50, 250, 400, 600, 900, 1_300, 2_000, 4_000)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PODS)
def test_a_slow_machine_gives_the_same_decision_or_none(name, mode):
    world, body = MODES[mode], review(PODS[name])
    whole = admission.decide_review("mutate", body, world)
    late = 0
    assert bool(whole.record.problems) == (name in ("too many", "parameters that a driver refuses"))
    for step in SPEEDS:
        decider = ReviewDecider(None, None, clock=Clock(step))
        for _ in range(3):
            outcome_of_review = decider.decide("mutate", body, world, 1.0)
            late += outcome_of_review.is_late
            if not outcome_of_review.is_late:
                assert outcome_of_review == whole
                continue
            outcome = outcome_of_review.record.outcome
            assert outcome == "undecided" or (
                outcome == whole.record.outcome and outcome in ("refused", "would refuse")
            )
            response = json.loads(outcome_of_review.body)["response"]
            if outcome == "would refuse":
                continue
            if outcome == "refused":
                assert NO_TIME in response["status"]["message"]
            elif mode != "observe":
                assert any("could not be decided in time" in text for text in response["warnings"])
    assert late
