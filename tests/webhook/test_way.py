"""The way of a pod, from the bytes of its review to the bytes of its patch: how much of the house it passes."""

import itertools
import sys
from pathlib import Path

from tests.webhook.admission.test_decide import ENFORCE, pod, review
from webhook.admission import decide

HOUSE = str(Path(__file__).parents[2])


def way(body: bytes) -> list[tuple[str, str]]:
    """Call for call: the file and the function, comprehensions and every turn of a generator counted like functions."""
    calls: list[tuple[str, str]] = []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(HOUSE):
            calls.append((code.co_filename, code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        decide.mutate(body, ENFORCE)
    finally:
        sys.setprofile(before)
    return [call for call in calls if "/.venv/" not in call[0]]


def test_a_pod_does_not_wander():
    body = review(pod(limits={"nvidia.com/gpu": "1"}))
    way(body)  # what is made once is made
    calls = way(body)
    changes = sum(one[0] != other[0] for one, other in itertools.pairwise(calls))
    assert len(calls) <= 110
    assert changes <= 59
