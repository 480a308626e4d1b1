"""On which nodes of a mixed fleet a pod is served: the preferred ones, unless only the others can serve it. Pure.

| preferred nodes | other nodes | the pod goes to |
|---|---|---|
| have a free device, or it is unknown | any | the preferred nodes |
| all that could serve it is in use | have a free device | the others |
| all that could serve it is in use | any other | the preferred nodes, where it waits |
| could not serve it even if idle | could, if idle | the others |
| could not serve it even if idle | could not either | the preferred nodes |

Looked at are the nodes that the pod can reach (`webhook.mixed_fleet.reach`), and devices; cpu and memory only as far as an idle node
has too little. Where it reaches none that serves it, those are looked at that are closed for a while, then those that an autoscaler can
make. A pod does not follow later changes: a pod that is created again is decided again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allocator import Options, Verdict, fleet
from dra.errors import OutOfBudget
from webhook.mixed_fleet.reach import NodeIndex, node_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import Node, ResourceClaim
    from dra.stock import Stock
    from webhook.mixed_fleet.preference import Preference
    from webhook.state import State

# As much search on one kind of node as whether claims fit at all may take (`webhook.admission.feasibility`).
STEPS = 3_000


class Room(IntEnum):
    """What nodes have for a pod."""

    NEVER = 0  # not even if idle
    BUSY = 1  # only in use
    UNKNOWN = 2
    FREE = 3


class Choice(msgspec.Struct, frozen=True):
    """Whether a pod goes to nodes that have moved, and why; `preferred` if the policy wants it there."""

    moved: bool
    why: str
    preferred: bool


class _Vacancy(NamedTuple):
    """What nodes have for a pod, and the node that shows it."""

    room: Room
    node: str = ""


class _Nodes(NamedTuple):
    """Nodes that a pod can reach: those whose device plugins hand out what it asks for, and those that publish it."""

    plugin: frozenset[str]
    driver: frozenset[str]
    stock: Stock | None
    # What pods use there, if it is known.
    uses: Mapping[str, Mapping[str, int]] | None

    @property
    def counts(self) -> str:
        return f"{len(self.driver)} of {len(self.plugin | self.driver)} reachable nodes serve claims"


def choose(preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget) -> Choice | None:
    """Choose the nodes of a pod that would ask by these claims on nodes that have moved; None if no node that it reaches hands its keys out."""
    moved, why = preference.moved, preference.why
    try:
        nodes = _reachable(preference, claims, state, budget)
        if nodes is None or not nodes.plugin:
            return None
        counts = nodes.counts
        if preference.on_each_node and len(nodes.plugin | nodes.driver) > 1 and nodes.driver:
            why = f"{counts}, and each of its pods is decided about when it is made for a node"
            return Choice(moved=False, why=why, preferred=False)
        if not nodes.driver:
            why = f"{counts}, and {min(nodes.plugin)} hands out {', '.join(preference.needs)}"
            return Choice(moved=False, why=why, preferred=False)
        if nodes.stock is None:
            return Choice(moved, f"{counts}; {why}; what is free is not known", preferred=True)
        here = _look(nodes, preference, claims, state, budget, moved=moved)
        there = _Vacancy(Room.UNKNOWN)
        if here.room in (Room.BUSY, Room.NEVER):
            there = _look(nodes, preference, claims, state, budget, moved=not moved)
    except OutOfBudget:
        return Choice(moved, f"{why}; what is free could not be found out in time", preferred=True)
    if here.room in (Room.FREE, Room.UNKNOWN):
        return Choice(moved, f"{counts}; {why}", preferred=True)
    is_better = there.room is Room.FREE
    if here.room is Room.NEVER:
        is_better = there.room is not Room.NEVER
    if not is_better:
        free = "is known to be free" if there.room is Room.UNKNOWN else "is free"
        return Choice(moved, f"{counts}; {why}; no device {free} on the other nodes either", preferred=True)
    none = "all devices there are in use" if here.room is Room.BUSY else "none of them could serve this pod"
    kind = "whose device plugin hands it out" if moved else "which has moved"
    has = "has a free one" if there.room is Room.FREE else "could"
    return Choice(not moved, f"{counts}; {why}, but {none}; node {there.node}, {kind}, {has}", preferred=False)


def _reachable(preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget) -> _Nodes | None:
    """Find the nodes that serve a pod one way or the other: those that it reaches, else those that are closed or not made yet."""
    seen = state.fleet
    handing = [seen.handed_out_anywhere.get(key, frozenset()) for key in preference.needs]
    plugin = frozenset.intersection(*handing)
    prospects = state.prospects
    if not plugin and prospects is None:
        return None
    found = node_index(seen).reach(preference.place, budget)
    stock = state.stock
    # The nodes that publish devices of all that claims ask for.
    publishing: list[frozenset[str]] = []
    for claim in claims:
        for request in claim.spec.devices.requests:
            bodies = [request.exactly] if request.exactly is not None else request.first_available
            served = [seen.classes.get(body.device_class_name) for body in bodies]
            publishing.append(frozenset().union(*[one.nodes for one in served if one is not None]))
    driver = frozenset.intersection(*publishing) if publishing else frozenset()
    if (
        stock is not None and plugin and stock.pages_on.get("")
    ):  # devices of no node are on all that their slices select
        driver |= set(fleet(stock, claims, options=Options(steps=STEPS, budget=budget), memo=state.memo).feasible)
    for names in (found.nodes, found.closed):
        if not names.isdisjoint(plugin | driver):
            return _Nodes(plugin & names, driver & names, stock, state.uses)
    if prospects is None:
        return None
    reached = NodeIndex(prospects.nodes).reach(preference.place, budget).nodes
    makes = fleet(prospects, claims, options=Options(steps=STEPS, budget=budget), idle=True)
    plugin = frozenset([name for name in reached if _has(prospects.nodes[name], preference.needs)])
    return _Nodes(plugin, reached.intersection(makes.feasible), prospects, {})


def _look(
    nodes: _Nodes, preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget, *, moved: bool
) -> _Vacancy:
    """Look for a node on which the claims can be served, or whose device plugins have enough."""
    stock = nodes.stock
    assert stock is not None
    if not moved:
        return _among_plugins(nodes, stock, preference, budget)
    for idle in (False, True):
        unsure = None
        answers = fleet(stock, claims, options=Options(steps=STEPS, budget=budget), idle=idle, memo=state.memo)
        for name in answers:
            if name not in nodes.driver:
                continue
            budget.charge()
            verdict = answers.verdict(name)
            if verdict is Verdict.INFEASIBLE or not _has(stock.nodes[name], preference.besides):
                continue
            if verdict is Verdict.FEASIBLE:
                return _Vacancy(Room.BUSY if idle else Room.FREE, name)
            unsure = _Vacancy(Room.UNKNOWN, name)
        if unsure is not None:
            return unsure
    return _Vacancy(Room.NEVER)


def _among_plugins(nodes: _Nodes, stock: Stock, preference: Preference, budget: Budget) -> _Vacancy:
    """Compare what device plugins hand out with what pods on the node ask for."""
    best = _Vacancy(Room.NEVER)
    uses = nodes.uses
    highest = Room.UNKNOWN if uses is None else Room.FREE
    for name in sorted(nodes.plugin):
        budget.charge()
        node = stock.nodes.get(name)
        if node is None or not _has(node, preference.needs) or not _has(node, preference.besides):
            continue
        used = uses.get(name, {}) if uses is not None else {}
        room = highest if _has(node, preference.needs, used) else Room.BUSY
        if room > best.room:
            best = _Vacancy(room, name)
        if room is highest:
            break
    return best


def _has(node: Node, amounts: Mapping[str, int], used: Mapping[str, int] | None = None) -> bool:
    """Say whether a node has so much besides what is used; what a kubelet always tells and is not known here is enough."""
    have = node.status.allocatable
    for name, amount in amounts.items():
        if name in have:
            if amount > have[name].nano - (used or {}).get(name, 0):
                return False
        elif amount and "/" in name:
            return False
    return True
