"""GPU shares of cloud providers are recognised and left."""

from tests.webhook.dialects.rows import rows_left
from tests.webhook.pods import outcomes, pod, untouched, verdict_of
from webhook.dialects.systems.cloud import DIALECT

ROWS = rows_left(DIALECT, {"tencent.com/vcuda-core": 20})


def test_both_numbers_of_a_share_are_left():
    done = verdict_of(pod({"tke.cloud.tencent.com/qgpu-core": 20, "tke.cloud.tencent.com/qgpu-memory": 4}))
    assert untouched(done)
    assert set(outcomes(done).values()) == {"left"}
