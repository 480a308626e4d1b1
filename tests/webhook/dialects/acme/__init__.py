"""Acme's device plugin: whole NPUs. An invented dialect; copy this folder to begin a new one (CONTRIBUTING.md).

Keys follow acme/npu-device-plugin; the target follows acme/npu-dra-driver.
"""

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Role, row
from webhook.dialects.targets import Target

DIALECT = Dialect(
    name="acme",
    title="Acme device plugin",
    target="acmeNpu",
    independent=True,
    keys=(row("acme.com/npu", "whole NPUs", Role.COUNT),),
)
VOCABULARY = vocabulary_of(
    DIALECT,
    Target(
        name="acmeNpu",
        title="Acme NPU",
        driver="npu.acme.com",
        classes=("npu.acme.com",),
        unique="npu.acme.com/uuid",
        product="npu.acme.com/productName",
        request="npu",
    ),
)
