"""Which nodes could serve unallocated claims. Nothing is reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.all_nodes import fleet
from allocator.answer import Rejection, SearchVerdict
from allocator.one_node import SearchOptions
from dra import step_limits
from dra.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.objects import ResourceClaim
    from dra.stock import Stock

_Names = tuple[str, ...]
MAX_GROUPS = 32  # that get detailed reasons


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes with the same answer. For a refusal, `stages` has the number of devices that each check rejected."""

    verdict: SearchVerdict
    nodes: tuple[str, ...]
    stages: tuple[Rejection, ...] = ()
    error: str = ""
    devices: tuple[str, ...] = ()  # that the claims would get on the first of the nodes


def try_out(claims: Sequence[ResourceClaim], stock: Stock, nodes: Iterable[str] | None = None) -> tuple[NodeGroup, ...]:
    """Try unallocated claims on all nodes, or on the given ones, and group the nodes by answer.

    Feasible groups come before the others, and larger groups before smaller ones.
    """
    options = SearchOptions(budget=Budget(step_limits.TRIAL))
    answers = fleet(stock, claims, options=options)
    candidate_nodes = set(answers if nodes is None else nodes)
    fitting: list[_Names] = []
    refusing: list[_Names] = []
    for names in answers.equal_nodes():
        group = tuple(name for name in names if name in candidate_nodes)
        if not group:
            continue
        fits = answers.verdict(group[0]) is SearchVerdict.FEASIBLE
        (fitting if fits else refusing).append(group)
    fitting.sort(key=len, reverse=True)
    refusing.sort(key=len, reverse=True)
    groups: list[NodeGroup] = []
    for index, group in enumerate((*fitting, *refusing)):
        first = group[0]
        if index >= MAX_GROUPS:
            groups.append(NodeGroup(answers.verdict(first), group))
            continue
        answer = answers[first]
        devices = tuple(f"{result.driver}/{result.pool}/{result.device}" for result in answer.results)
        groups.append(NodeGroup(answer.verdict, group, answer.reasons, answer.error or "", devices))
    return tuple(groups)
