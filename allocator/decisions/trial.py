"""Groups of nodes that have one answer about unallocated claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Rejection, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.all_nodes import FleetAnswer

MAX_GROUPS = 32  # that get detailed reasons


class NodeGroup(msgspec.Struct, frozen=True):
    """Nodes with the same answer. For a refusal, `stages` has the number of devices that each check rejected."""

    verdict: SearchVerdict
    nodes: tuple[str, ...]
    stages: tuple[Rejection, ...] = ()
    error: str = ""
    devices: tuple[str, ...] = ()  # that the claims would get on the first of the nodes


def by_answer(answers: FleetAnswer, nodes: Iterable[str]) -> tuple[NodeGroup, ...]:
    """Group these nodes by their answer about unallocated claims.

    Feasible groups come before the others, and larger groups before smaller ones.
    """
    candidates = set(nodes)
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
