"""GPU shares of cloud providers are recognised and left unchanged."""

from tests.webhook.dialects.rows import rows_not_translated
from tests.webhook.pods import outcomes, pod, untouched, verdict_of
from webhook.dialects.systems.cloud import DIALECT

ROWS = rows_not_translated(DIALECT, {"tencent.com/vcuda-core": 20})


def test_both_keys_of_a_tencent_share_are_left_unchanged():
    verdict = verdict_of(pod({"tke.cloud.tencent.com/qgpu-core": 20, "tke.cloud.tencent.com/qgpu-memory": 4}))
    assert untouched(verdict)
    assert set(outcomes(verdict).values()) == {"left"}
