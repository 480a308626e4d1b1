"""Every pod that does not run is found, its first remedy helps and harms nobody, and all commands say the same: fleet × fault × spelling."""

import random
from itertools import product

from analysis.doctor import DoctorInput, diagnose
from analysis.explain import pod_story
from analysis.loading import reading_of
from analysis.outlook import queue_of
from dashboard.waiting import waiting_row
from dra.codes import Severity
from tests.analysis.faulty_fleets import FAULTS, FLEETS, SPELLINGS, WAITS, apply, plant
from tests.limits import draws
from tests.loops import every
from webhook.state import Features

POD = "Pod/team/p"
MOST = 16  # remedies in a row: each of the 6 devices of a fleet may have several obstacles


def dumps():
    """Return all single faults in every fleet and spelling, and half as many pairs."""
    singles = [(fleet, spelling, (kind,)) for kind, fault in FAULTS.items() for fleet, spelling in product(FLEETS, fault.spellings)]  # fmt: skip
    rng, pairs = random.Random(74), []
    together = [kind for kind, fault in FAULTS.items() if not fault.alone]
    holders = {kind for kind, fault in FAULTS.items() if "holders" in kind or "dead" in kind}
    while len(pairs) < len(singles) // 2:
        kinds, fleet, spelling = tuple(rng.sample(together, 2)), rng.choice(list(FLEETS)), rng.choice(SPELLINGS)
        if not holders.issuperset(kinds) and all(spelling in FAULTS[kind].spellings for kind in kinds):
            pairs.append((fleet, spelling, kinds))
    return [*singles, *pairs]


def sample(cases):
    """Return all cases in `make test-all`; else every fault once, in a fleet and a spelling, and a part of the pairs."""
    if draws(len(cases)) == len(cases):
        return cases
    rng = random.Random(0)
    single = [rng.choice([case for case in cases if case[2] == (kind,)]) for kind in FAULTS]
    return [*single, *rng.sample([case for case in cases if len(case[2]) > 1], len(FAULTS) // 2)]


def finding_of(reading, story):
    """Return the finding of doctor about the pod, or about the cause of its first reason. Doctor has none about pods that need nobody."""
    findings = list(diagnose(DoctorInput(reading=reading)))
    assert not [finding for finding in findings if "trap/" in f"{finding.object} {finding.message}"]
    about = {POD, *story.state.reasons[0].causes}
    return next((finding for finding in findings if finding.object == POD), None) or next(
        (finding for finding in findings if finding.object in about), None
    )


def read(world):
    reading = reading_of(world.objects(), Features(minor=37))
    return reading, pod_story("team/p", reading)


def is_served(story):
    """Whether the pod runs, or a scheduler only has to bind it."""
    [reason, *_] = story.state.reasons
    return story.state.step is None or bool(story.room_on and not reason.code and not reason.remedies)


@every(["fleet", "spelling", "kinds"], sample(dumps()))
def test_a_pod_that_does_not_run(fleet, spelling, kinds):
    world = plant(fleet, spelling, *kinds)
    seen = set()
    for step in range(MOST):
        reading, story = read(world)
        if step and is_served(story):
            return
        reason = story.state.reasons[0]
        finding = finding_of(reading, story)
        assert finding is not None, f"step {step}: {reason}"
        waits = finding.severity is Severity.INFO
        if not step:
            assert waits is all(FAULTS[kind].degree == WAITS for kind in kinds), finding
        if finding.object == POD:
            assert finding.message == reason.text
            assert finding.remedy.endswith(reason.remedy)
        row = waiting_row("team/p", reading)
        assert (row.reason, row.remedies) == (reason.text, reason.remedies or row.remedies)
        assert harmless(reason.remedy, world), reason
        placed = queue_of(reading).place("team/p").node
        assert placed is None or reason.code == "O109" or world.spec.get("nodeName"), "simulate places it"
        state = finding.message, reason.remedy, len(world.other)
        assert state not in seen, f"the remedy does not help: {state}"
        seen.add(state)
        apply(world, reason.text, reason.remedy or finding.remedy, waits)
    raise AssertionError(f"the pod does not run after {MOST} remedies: {reason}")


def harmless(remedy, world):
    """Whether a remedy ends no pod of higher priority, tolerates no taint of health, and names no other kind of device."""
    important = [stored["metadata"]["name"] for stored in world.other if stored["kind"] == "Pod" and stored["spec"].get("priority", 0) > 0]  # fmt: skip
    return not any(word in remedy for word in (*important, "tolerate example.com/unhealthy", "nic"))
