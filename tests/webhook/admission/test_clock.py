"""The answer about a pod does not depend on how busy a machine is: the same words, or that it was not found out in time."""

import json

import pytest

from allocator import FleetMemo
from dra import wire
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import DeviceTaintRule
from tests.webhook.admission.test_decide import gpu_pod, review, state
from tests.webhook.admission.test_feasibility import DRIVER, claim_for, stock, typed_class
from tests.webhook.admission.test_parameters import WRONG, bringing, spec
from webhook.admission import review as admission
from webhook.admission.feasibility import NO_TIME, UNKNOWN, Feasibility, judge
from webhook.service.deciding.decider import ReviewDecider

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


class Impatient:
    """Waits for so many looks, and no longer."""

    def __init__(self, looks):
        self.left = looks
        self.ended = False

    def __call__(self):
        self.left -= 1
        self.ended = self.ended or self.left < 0
        return self.left < 0


def asked(fleet, claims, budget, **more):
    """A judgement; an ended question has none."""
    try:
        return judge(fleet, claims, budget=budget, **more)
    except OutOfBudget:
        return UNKNOWN


@pytest.mark.parametrize("name", QUESTIONS)
def test_whenever_time_ends_the_words_are_the_same_or_say_so(name):
    fleet, claims = QUESTIONS[name]
    whole = judge(fleet, claims)
    ends = set()
    for looks in range(10_000):
        clock = Impatient(looks)
        budget = Budget(1_000_000, clock)
        told = asked(fleet, claims, budget)
        assert budget.is_late == clock.ended
        if not clock.ended:
            break
        ends.add(told.verdict)
        if told.verdict is Feasibility.NEVER:
            assert whole.verdict is Feasibility.NEVER
            assert (told.code, told.claim) == (whole.code, whole.claim)
            assert told.text.split(": ")[0] == whole.text.split(": ")[0]
            assert told == whole or told.remedy == NO_TIME
    assert told == whole
    assert Feasibility.UNKNOWN in ends
    if whole.verdict is Feasibility.NEVER and name != "a sum":  # its words are what it was decided by
        assert Feasibility.NEVER in ends, "the verdict stands when the words do not"


@pytest.mark.parametrize("name", QUESTIONS)
def test_facts_remembered_from_earlier_searches_do_not_change_an_answer(name):
    """Remembered facts leave more steps, and do not change the answer."""
    fleet, claims = QUESTIONS[name]
    memo = FleetMemo()
    whole = judge(fleet, claims)
    for steps in (20, 200, 2_000, 20_000, 200_000):
        for _ in range(2):
            told = asked(fleet, claims, Budget(steps), memo=memo)
            assert told == whole or told.verdict is Feasibility.UNKNOWN


class Clock:
    """A clock that goes on by so much at each look: a machine that is so slow."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


PODS = {
    "fits": gpu_pod(),
    "parameters that a driver refuses": bringing(),
    "too many": gpu_pod(limits={"nvidia.com/gpu": "16"}),
    "as many as there are": gpu_pod(limits={"nvidia.com/gpu": "4"}),
}
MODES = {mode: state(mode=mode, templates={("ns", "t"): spec(WRONG)}) for mode in ("enforce", "observe", "warn")}
# A look stands for 256 steps: so long on a machine as they are meant for, and on others.
SPEEDS = [256e-6 * speed for speed in (1 / 50, 1, 50, 250, 400, 600, 900, 1_300, 2_000, 4_000)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PODS)
def test_a_slow_machine_says_the_same_of_a_pod_or_that_it_was_not_decided(name, mode):
    on, body = MODES[mode], review(PODS[name])
    whole = admission.mutate(body, on)
    late = 0
    assert bool(whole.record.problems) == (name in ("too many", "parameters that a driver refuses"))
    for step in SPEEDS:
        decider = ReviewDecider(None, None, str, clock=Clock(step))
        for _ in range(3):
            told = decider.decide("mutate", body, on, 1.0)
            late += told.is_late
            if not told.is_late:
                assert told == whole
                continue
            outcome = told.record.outcome
            assert outcome == "undecided" or (
                outcome == whole.record.outcome and outcome in ("refused", "would refuse")
            )
            said = json.loads(told.body)["response"]
            if outcome == "would refuse":
                continue
            if outcome == "refused":
                assert NO_TIME in said["status"]["message"]
            elif mode != "observe":
                assert any("could not be decided in time" in text for text in said["warnings"])
    assert late
