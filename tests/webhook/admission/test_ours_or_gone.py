"""An admitted pod has no annotation or label of drawbridge that drawbridge did not write. Mode observe changes no pod."""

import copy
import random

from tests.limits import draws
from tests.loops import every
from tests.webhook.admission.reviews import FORGED, answer, applied, broken, gpu_pod, mutated, review, state
from webhook import names
from webhook.admission import ReviewError
from webhook.admission import review as admission
from webhook.translate.pod_view import view_pod
from webhook.translate.record import NOTHING_WRITTEN, read_record

TRANSLATED = mutated(gpu_pod())[0]
ORIGINALS = [
    gpu_pod(),
    TRANSLATED,
    gpu_pod(annotations=FORGED),
    gpu_pod(limits={"nvidia.com/gpu": "one"}, annotations=FORGED),
]
TEXTS = ["{}", "[]", '{"a":1}', '"x"', "[" * 5000, "null"]


def spoiled(rng):
    """Return a pod with some parts, and perhaps one of drawbridge's annotations, replaced by random values."""
    value = rng.choice(ORIGINALS)
    for _ in range(rng.randint(0, 3)):
        value = broken(value, rng)
    value = copy.deepcopy(value)
    metadata = value.get("metadata")
    if rng.random() < 0.5 and isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        metadata["annotations"][rng.choice(names.ANNOTATIONS)] = rng.choice(TEXTS)
    return value


@every("seed", range(draws(300)))
def test_an_admitted_pod_has_no_forged_annotations_or_labels(seed):
    value = spoiled(random.Random(seed))
    for mode in ("enforce", "warn", "observe", "off"):
        current_state = state(mode=mode)
        try:
            outcome = admission.decide_review("mutate", review(value), current_state)
        except ReviewError:
            return
        if not answer(outcome)["allowed"]:
            continue
        reviewed = applied(value, outcome)
        if mode in ("observe", "off"):
            assert reviewed == value
            continue
        pod_view = view_pod(reviewed, current_state.configuration)
        has_valid_record = read_record(pod_view, "ns", current_state.keys) is not NOTHING_WRITTEN
        assert has_valid_record or pod_view.is_skipped or not pod_view.marked
