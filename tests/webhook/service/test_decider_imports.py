"""The modules of a decision are imported before the first review, so that no review waits for an import."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from time import process_time
from types import SimpleNamespace
from tests.webhook.admission.test_decide import ENFORCE, gpu_pod, review
from tests.webhook.hostile import CORPUS, REVIEWS
from webhook.admission import ReviewError
from webhook.service.decider import ReviewDecider

reviews = [("mutate", review(gpu_pod())), *((path, make()) for path, make in (REVIEWS | CORPUS).values())]
decider = ReviewDecider(SimpleNamespace(), SimpleNamespace())
before, decided = set(sys.modules), 0
for path, body in reviews:
    if len(body) <= 64 * 1024:
        try:
            decider.decide(path, body, ENFORCE, 0.05)
        except ReviewError:
            continue
        decided += 1
assert decided > 10, decided
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.whole
def test_no_decision_imports_a_module():
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (process.stdout.strip(), process.stderr) == ("[]", "")
