"""Every drawbridge annotation or label on an admitted pod was written by drawbridge, and observe mode changes nothing."""

import copy
import random

import pytest

from tests.draws import draws
from tests.webhook.admission.reviews import FORGED, answer, applied, broken, gpu_pod, mutated, review, state
from webhook import names
from webhook.admission import ReviewError
from webhook.admission import review as admission
from webhook.translate.pod_view import view_pod
from webhook.translate.record import NOTHING_WRITTEN, read_record

OURS = mutated(gpu_pod())[0]
STARTS = [gpu_pod(), OURS, gpu_pod(annotations=FORGED), gpu_pod(limits={"nvidia.com/gpu": "one"}, annotations=FORGED)]
TEXTS = ["{}", "[]", '{"a":1}', '"x"', "[" * 5000, "null"]


def spoiled(rng):
    """Return a pod with some parts, and one of our annotations, replaced by random values."""
    value = rng.choice(STARTS)
    for _ in range(rng.randint(0, 3)):
        value = broken(value, rng)
    value = copy.deepcopy(value)
    metadata = value.get("metadata")
    if rng.random() < 0.5 and isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        metadata["annotations"][rng.choice(names.ANNOTATIONS)] = rng.choice(TEXTS)
    return value


@pytest.mark.parametrize("seed", range(draws(300)))
def test_a_pod_keeps_only_valid_drawbridge_marks(seed):
    value = spoiled(random.Random(seed))
    for mode in ("enforce", "warn", "observe", "off"):
        here = state(mode=mode)
        try:
            outcome = admission.decide_review("mutate", review(value), here)
        except ReviewError:
            return
        if not answer(outcome)["allowed"]:
            continue
        after = applied(value, outcome)
        if mode in ("observe", "off"):
            assert after == value
            continue
        seen = view_pod(after, here.configuration)
        believed = read_record(seen, "ns", here.keys) is not NOTHING_WRITTEN
        assert believed or seen.is_skipped or not seen.marked
