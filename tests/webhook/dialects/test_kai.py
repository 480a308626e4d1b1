"""KAI and Run:ai: annotations that ask by themselves, where the pod is KAI's."""

import pytest

from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import WHOLE, actions, became, pod, untouched
from webhook.dialects.systems.annotated import KAI

KAIS = {"scheduler": "kai-scheduler"}
ROWS = rows_left(KAI, {}, **KAIS)


def asking(key: str, value: str, *, queue: str = "", scheduler: str = "") -> dict:
    made = pod({}, annotations={key: value}, scheduler=scheduler)
    if queue:
        made["metadata"]["labels"] = {queue: "q"}
    return made


@pytest.mark.parametrize(("key", "value"), [("gpu-fraction", "0.5"), ("gpu-memory", "2000")])
@pytest.mark.parametrize("whose", [KAIS, {"queue": "kai.scheduler/queue"}, {"queue": "runai/queue"}])
def test_a_share_stays_and_a_warning_says_why(key, value, whose):
    done = became(asking(key, value, **whose))
    assert untouched(done)
    assert actions(done) == {key: "left"}
    assert key in done.warnings[0]


@pytest.mark.parametrize("key", ["gpu-fraction", "gpu-memory"])
def test_the_same_words_on_pods_of_other_schedulers_say_nothing(key):
    done = became(asking(key, "1"))
    assert not done.decisions
    assert not done.warnings


def test_a_pod_in_a_queue_keeps_its_scheduler():
    value = pod({"nvidia.com/gpu": 1}, **KAIS)
    value["metadata"]["labels"] = {"kai.scheduler/queue": "q"}
    assert untouched(became(value, **WHOLE))
