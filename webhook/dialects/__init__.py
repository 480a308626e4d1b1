"""The keys by which pods request accelerators from device plugins, and from systems with their own scheduler.

Each folder is the dialect of one system or device plugin: a table of its keys, the targets that they request, and the code that reads them if the
table is not enough.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from webhook.dialects import plain
from webhook.dialects.plain import compile_expression, too_costly
from webhook.dialects.supply import NUMBER, Product, Served, Supply, assumed
from webhook.dialects.table import (
    ALTERNATIVES,
    CLAIMS,
    REPLACED,
    SHARES,
    Dialect,
    KnownRow,
    Need,
    Outcome,
    Position,
    Role,
    Row,
    SchedulerSupport,
    Scope,
    Unit,
    dropped_detail,
    pattern,
    pattern_of_any,
)
from webhook.dialects.targets import DRANET_NUMA_NODE, NETWORK_RESOURCE, NUMA_NODE, PCIE_ROOT, Target
from webhook.dialects.vocabulary import (
    AUTO,
    MIB,
    POD_LIMIT,
    UNREADABLE,
    WHOLE,
    Amount,
    AnnotatedPod,
    AnyDemand,
    BareKey,
    ContainerAmounts,
    Demand,
    DialectAnswer,
    DialectOptions,
    DialectRequest,
    Hint,
    KeyedDemand,
    Meaning,
    NodeRequirement,
    Note,
    Pairs,
    Selected,
    TiedDemands,
    Vocabulary,
    kinds,
    leave,
    mistake,
    refuse,
)

# `Any`, because each vocabulary has its own type of options.
VOCABULARIES: tuple[Vocabulary[Any], ...] = tuple(
    import_module(f"{__name__}.{module.name}").VOCABULARY for module in iter_modules(__path__) if module.ispkg
)
TARGETS = {target.name: target for dialect in VOCABULARIES for target in dialect.targets}

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
    "POD_LIMIT",
    "REPLACED",
    "SHARES",
    "TARGETS",
    "UNREADABLE",
    "VOCABULARIES",
    "WHOLE",
    "Amount",
    "AnnotatedPod",
    "AnyDemand",
    "BareKey",
    "ContainerAmounts",
    "Demand",
    "Dialect",
    "DialectAnswer",
    "DialectOptions",
    "DialectRequest",
    "Hint",
    "KeyedDemand",
    "KnownRow",
    "Meaning",
    "Need",
    "NodeRequirement",
    "Note",
    "Outcome",
    "Pairs",
    "Position",
    "Product",
    "Role",
    "Row",
    "SchedulerSupport",
    "Scope",
    "Selected",
    "Served",
    "Supply",
    "Target",
    "TiedDemands",
    "Unit",
    "Vocabulary",
    "assumed",
    "compile_expression",
    "dropped_detail",
    "kinds",
    "leave",
    "mistake",
    "pattern",
    "pattern_of_any",
    "plain",
    "refuse",
    "too_costly",
]
