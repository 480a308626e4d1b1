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

    from allocator.all_nodes import FleetAnswer
    from dra.objects import ResourceClaim
    from dra.stock import Stock

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
    answers = fleet(stock, claims, options=SearchOptions(budget=Budget(step_limits.TRIAL)))
    candidates = set(answers if nodes is None else nodes)
    groups = [tuple([name for name in names if name in candidates]) for names in answers.equal_nodes()]
    feasible = set(answers.feasible)
    groups = sorted(filter(None, groups), key=lambda group: (group[0] not in feasible, -len(group)))
    return tuple([_group(answers, group, explain=number < MAX_GROUPS) for number, group in enumerate(groups)])


def _group(answers: FleetAnswer, nodes: tuple[str, ...], *, explain: bool) -> NodeGroup:
    if not explain:
        return NodeGroup(answers.verdict(nodes[0]), nodes)
    answer = answers[nodes[0]]
    devices = tuple(f"{result.driver}/{result.pool}/{result.device}" for result in answer.results)
    return NodeGroup(answer.verdict, nodes, answer.reasons, answer.error or "", devices)
