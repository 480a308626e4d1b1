"""The vocabularies that pods use to ask for accelerators: device plugins, and systems with a scheduler of their own.

One module each: a table of keys, and the code that reads them.
"""

from __future__ import annotations

from typing import Any

from webhook.dialects import plain
from webhook.dialects.plain import compile_expression, too_costly
from webhook.dialects.plugins import amazon, amd, ascend, google, hygon, intel, nics, nvidia, rebellions, undriven
from webhook.dialects.supply import NUMBER, Product, Served, Supply, assumed
from webhook.dialects.systems import annotated, cloud, hami, llmd, one_card, volcano
from webhook.dialects.systems.koordinator import reader as koordinator
from webhook.dialects.table import (
    ALTERNATIVES,
    CLAIMS,
    SHARES,
    Action,
    Dialect,
    Known,
    Need,
    Position,
    Role,
    Row,
    Scheduler,
    Scope,
    Unit,
    pattern,
)
from webhook.dialects.targets import DRANET_NUMA_NODE, NETWORK_RESOURCE, NUMA_NODE, PCIE_ROOT, TARGETS, Target
from webhook.dialects.vocabulary import (
    AUTO,
    MIB,
    UNREADABLE,
    WHOLE,
    Amount,
    Answer,
    Asked,
    Bare,
    Demand,
    Hint,
    Keyed,
    Left,
    Meaning,
    Mistake,
    Note,
    Options,
    Pairs,
    Refusal,
    Said,
    Selected,
    Selection,
    Together,
    Vocabulary,
    Words,
    kinds,
)

# Each reads its own options, so the type of those is known to its module alone.
VOCABULARIES: tuple[Vocabulary[Any], ...] = (
    nvidia.VOCABULARY,
    hami.VOCABULARY,
    koordinator.VOCABULARY,
    volcano.VOCABULARY,
    one_card.VOLCANO_SHARE,
    one_card.VOCABULARY,
    *annotated.VOCABULARIES,
    llmd.VOCABULARY,
    cloud.VOCABULARY,
    amd.VOCABULARY,
    intel.VOCABULARY,
    google.VOCABULARY,
    hygon.VOCABULARY,
    ascend.VOCABULARY,
    amazon.VOCABULARY,
    nics.VOCABULARY,
    rebellions.VOCABULARY,
    undriven.VOCABULARY,
)

__all__ = [
    "ALTERNATIVES",
    "AUTO",
    "CLAIMS",
    "DRANET_NUMA_NODE",
    "MIB",
    "NETWORK_RESOURCE",
    "NUMA_NODE",
    "NUMBER",
    "PCIE_ROOT",
    "SHARES",
    "TARGETS",
    "UNREADABLE",
    "VOCABULARIES",
    "WHOLE",
    "Action",
    "Amount",
    "Answer",
    "Asked",
    "Bare",
    "Demand",
    "Dialect",
    "Hint",
    "Keyed",
    "Known",
    "Left",
    "Meaning",
    "Mistake",
    "Need",
    "Note",
    "Options",
    "Pairs",
    "Position",
    "Product",
    "Refusal",
    "Role",
    "Row",
    "Said",
    "Scheduler",
    "Scope",
    "Selected",
    "Selection",
    "Served",
    "Supply",
    "Target",
    "Together",
    "Unit",
    "Vocabulary",
    "Words",
    "assumed",
    "compile_expression",
    "kinds",
    "pattern",
    "plain",
    "too_costly",
]
