"""GPU shares of cloud providers are recognised and left unchanged."""

from tests.webhook.dialects.rows import rows_not_translated
from webhook.dialects.cloud import DIALECT

ROWS = rows_not_translated(DIALECT, {"tencent.com/vcuda-core": 20})
