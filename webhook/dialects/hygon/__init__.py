"""Hygon's device plugin: whole cards. Its DRA driver allocates a whole card to a claim without amounts.

Keys follow HYGON-AI/k8s-dcu-device-plugin (strategies dcu and mixed); the target follows HYGON-AI/k8s-hcu-dra-driver, which calls the
cards HCU. `undriven` has the keys for parts of a card, with the reason why they stay.
"""

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Role, row
from webhook.dialects.targets import Target

DIALECT = Dialect(
    name="hygon",
    title="Hygon device plugin",
    target="hcu",
    independent=True,
    keys=(
        row("hygon.com/dcu", "whole cards", Role.COUNT),
        row("hygon.cn/hcu", "whole cards, the newer name", Role.COUNT),
    ),
)


VOCABULARY = vocabulary_of(
    DIALECT,
    Target(
        name="hcu",
        title="whole Hygon HCU",
        driver="dra.hygon.com",
        classes=("dra.hygon.com",),
        type="hcu",
        where={"type": "hcu"},
        unique="dra.hygon.com/uuid",
        product="dra.hygon.com/productName",
        request="hcu",
    ),
)
