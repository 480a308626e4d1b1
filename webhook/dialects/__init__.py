"""The vocabularies that pods use to ask for accelerators: one module each, a table of keys and the code to read them."""

from __future__ import annotations

from typing import Any

from webhook.dialects import hami, koordinator, nvidia, plain
from webhook.dialects.demand import AUTO, MIB, Demand, Keyed, Left, Note, Pairs, Refusal
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Scheduler, Scope, Unit, pattern
from webhook.dialects.targets import DRANET_NUMA_NODE, NETWORK_RESOURCE, NUMA_NODE, PCIE_ROOT, TARGETS, Target
from webhook.dialects.vocabulary import Bare, Vocabulary
from webhook.dialects.words import WHOLE, Amount, Hint, Meaning, Mistake, Options, Said, Words

# Each reads its own options, so the type of those is known to its module alone.
VOCABULARIES: tuple[Vocabulary[Any], ...] = (
    nvidia.VOCABULARY,
    hami.VOCABULARY,
    koordinator.VOCABULARY,
)

__all__ = [
    "AUTO",
    "DRANET_NUMA_NODE",
    "MIB",
    "NETWORK_RESOURCE",
    "NUMA_NODE",
    "PCIE_ROOT",
    "TARGETS",
    "VOCABULARIES",
    "WHOLE",
    "Action",
    "Amount",
    "Bare",
    "Demand",
    "Dialect",
    "Hint",
    "Keyed",
    "Left",
    "Meaning",
    "Mistake",
    "Note",
    "Options",
    "Pairs",
    "Position",
    "Refusal",
    "Role",
    "Row",
    "Said",
    "Scheduler",
    "Scope",
    "Target",
    "Unit",
    "Vocabulary",
    "Words",
    "pattern",
    "plain",
]
