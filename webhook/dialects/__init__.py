"""The vocabularies that pods use to ask for accelerators: one module each, a table of keys and the rule to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.dialects import hami, koordinator, nvidia, plain
from webhook.dialects.demand import AUTO, MIB, Demand, Left, Note, Pairs, Refusal
from webhook.dialects.nvidia import profile_of
from webhook.dialects.table import Action, Dialect, Position, Role, Row, Scope, pattern
from webhook.dialects.targets import DRANET_NUMA_NODE, NETWORK_RESOURCE, NUMA_NODE, PCIE_ROOT, TARGETS, Target
from webhook.dialects.words import Amount, Answer, HamiOptions, Hint, KoordinatorOptions, NvidiaOptions, Options, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Rule = Callable[[tuple[Said, ...], Mapping[Role, Hint], Options, Dialect], Answer]

BUILT_IN: tuple[Dialect, ...] = (nvidia.DIALECT, hami.DIALECT, koordinator.DIALECT)

# How the words are read, by the name a table gives. Rules of container scope get one container at a time.
RULES: Mapping[str, Rule] = {
    "plain": lambda said, _, __, dialect: plain.read(said, dialect),
    "nvidia": lambda said, _, options, __: nvidia.read(said[0], options),
    "hami": lambda said, hints, options, _: hami.read(said[0], hints, options),
    "koordinator": lambda said, hints, options, _: koordinator.read(said, hints, options),
}

__all__ = [
    "AUTO",
    "BUILT_IN",
    "DRANET_NUMA_NODE",
    "MIB",
    "NETWORK_RESOURCE",
    "NUMA_NODE",
    "PCIE_ROOT",
    "RULES",
    "TARGETS",
    "Action",
    "Amount",
    "Answer",
    "Demand",
    "Dialect",
    "HamiOptions",
    "Hint",
    "KoordinatorOptions",
    "Left",
    "Note",
    "NvidiaOptions",
    "Options",
    "Pairs",
    "Position",
    "Refusal",
    "Role",
    "Row",
    "Said",
    "Scope",
    "Target",
    "nvidia",
    "pattern",
    "profile_of",
]
