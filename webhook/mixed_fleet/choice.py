"""On which nodes of a mixed fleet a pod is served: the preferred ones, unless only the others can serve it. Pure.

| preferred nodes | other nodes | the pod goes to |
|---|---|---|
| have a free device, or it is unknown | any | the preferred nodes |
| all that could serve it is in use | have a free device | the others |
| all that could serve it is in use | any other | the preferred nodes, where it waits |
| could not serve it even if idle | could, if idle | the others |
| could not serve it even if idle | could not either | the preferred nodes |

Looked at are nodes where the pod may run (cordons, taints, node selector, required affinity), and devices; not cpu and memory. A pod
does not follow later changes: a pod that is created again is decided again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allocator import Options, Verdict, fleet
from allocator.pods import refusal
from dra.errors import OutOfBudget
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.budget import Budget
    from dra.objects import Node, ResourceClaim
    from dra.stock import Stock
    from webhook.mixed_fleet.preference import Preference
    from webhook.state import State

# As much search on one kind of node as whether claims fit at all may take (`webhook.admission.feasibility`).
STEPS = 3_000
BYTES_A_STEP = 64


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


class _Nodes:
    """Both kinds of node as one pod sees them; each kind is looked at only if the choice depends on it."""

    def __init__(
        self, preference: Preference, claims: Sequence[ResourceClaim], stock: Stock, state: State, budget: Budget
    ) -> None:
        self._preference = preference
        self._claims = claims
        self._stock = stock
        self._state = state
        self._budget = budget
        # What it costs to ask a node whether the pod may run there: by the size of what the pod says about nodes.
        self._price = 1 + len(encode(preference.place)) // BYTES_A_STEP

    def look(self, *, moved: bool) -> _Vacancy:
        """Look for a node on which the claims can be served, or whose device plugins have enough."""
        if not moved:
            return self._among_plugins()
        return self._among_drivers(idle=False) or self._among_drivers(idle=True) or _Vacancy(Room.NEVER)

    def _among_plugins(self) -> _Vacancy:
        """Compare what device plugins hand out with what pods on the node ask for."""
        best = _Vacancy(Room.NEVER)
        uses = self._state.uses
        for name in sorted(_givers(self._preference, self._state)):
            self._budget.charge()
            node = self._stock.nodes.get(name)
            if node is None:
                continue
            room = Room.UNKNOWN if uses is None else Room.FREE
            used = uses.get(name, {}) if uses is not None else {}
            for key, amount in self._preference.needs.items():
                has = node.status.allocatable[key].nano
                if amount > has:
                    room = Room.NEVER
                    break
                if amount > has - used.get(key, 0):
                    room = Room.BUSY
            if room > best.room and self._is_open(node):
                best = _Vacancy(room, name)
            if room is Room.FREE and best.room is room:
                break
        return best

    def _among_drivers(self, *, idle: bool) -> _Vacancy | None:
        unsure = None
        options = Options(steps=STEPS, budget=self._budget)
        answers = fleet(self._stock, self._claims, options=options, idle=idle, memo=self._state.memo)
        for name in answers:
            self._budget.charge()
            verdict = answers.verdict(name)
            if verdict is Verdict.INFEASIBLE or not self._is_open(self._stock.nodes[name]):
                continue
            if verdict is Verdict.FEASIBLE:
                return _Vacancy(Room.BUSY if idle else Room.FREE, name)
            unsure = _Vacancy(Room.UNKNOWN, name)
        return unsure

    def _is_open(self, node: Node) -> bool:
        self._budget.charge(self._price)
        return not refusal(self._preference.place, node, {})


def choose(preference: Preference, claims: Sequence[ResourceClaim], state: State, budget: Budget) -> Choice | None:
    """Choose the nodes of a pod that would ask by these claims on nodes that have moved; None if no node hands its keys out."""
    if not _givers(preference, state):
        return None
    moved, why = preference.moved, preference.why
    if state.stock is None:
        return Choice(moved, f"{why}; what is free is not known", preferred=True)
    nodes = _Nodes(preference, claims, state.stock, state, budget)
    there = _Vacancy(Room.UNKNOWN)
    try:
        here = nodes.look(moved=moved)
        if here.room in (Room.BUSY, Room.NEVER):
            there = nodes.look(moved=not moved)
    except OutOfBudget:
        return Choice(moved, f"{why}; what is free could not be found out in time", preferred=True)
    if here.room in (Room.FREE, Room.UNKNOWN):
        return Choice(moved, why, preferred=True)
    is_better = there.room is Room.FREE
    if here.room is Room.NEVER:
        is_better = there.room is not Room.NEVER
    if not is_better:
        free = "is known to be free" if there.room is Room.UNKNOWN else "is free"
        return Choice(moved, f"{why}; no device {free} on the other nodes either", preferred=True)
    none = "all devices there are in use" if here.room is Room.BUSY else "none of them could serve this pod"
    kind = "whose device plugin hands it out" if moved else "which has moved"
    has = "has a free one" if there.room is Room.FREE else "could"
    return Choice(not moved, f"{why}, but {none}; node {there.node}, {kind}, {has}", preferred=False)


def _givers(preference: Preference, state: State) -> frozenset[str]:
    """Find the nodes whose device plugins hand out everything that a pod needs."""
    of_each = [state.fleet.handed_out.get(key, frozenset()) for key in preference.needs]
    return frozenset.intersection(*of_each)
