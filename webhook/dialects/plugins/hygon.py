"""Hygon's device plugin: whole cards, which its DRA driver gives whole where a claim names no amounts.

Keys follow HYGON-AI/k8s-dcu-device-plugin (strategies dcu and mixed); the target HYGON-AI/k8s-hcu-dra-driver, which calls the cards HCU.
Parts of a card are in `undriven`, with the reason.
"""

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Role, row

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
VOCABULARY = vocabulary_of(DIALECT)
