"""Google TPUs: chips are counted, and the node selectors stay."""

from tests.webhook.dialects.rows import Row, rows_left
from tests.webhook.pods import exactly, patched, pod, verdict_of
from webhook.dialects.plugins.google import DIALECT

TPU = {"google.com/tpu": 4}
ROWS = {"google.com/tpu": Row(pod(TPU), "translated"), **rows_left(DIALECT, TPU)}


def test_chips_are_counted_and_the_selectors_stay():
    selectors = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice", "cloud.google.com/gke-tpu-topology": "2x4"}  # fmt: skip
    value = pod(TPU, nodeSelector=selectors)
    done = verdict_of(value)
    assert exactly(done) == [{"class": "tpu.google.com", "count": 4}]
    assert patched(value, done)["spec"]["nodeSelector"] == selectors


def test_zero_requests_nothing():
    assert not verdict_of(pod({"google.com/tpu": 0})).templates
