"""The search, in the order of the in-tree allocator but without its dead ends.

The in-tree depth-first search ends at the first *event*: a solution, or a fatal error. The answer stays the same if subtrees without
an event are skipped. So this search keeps the order and skips only these:

  siblings   after a candidate fails, later candidates that are interchangeable with it are skipped
  memo       a state fails if it equals a failed state up to an exchange of interchangeable devices or identical units
  twins      requests that can be swapped take rising positions
  counts     a request needs at least as many free candidates as devices
  values     a request needs at least as many candidates with a common value of a matchAttribute (checked when the problem is compiled)
  proof      a relaxation (`allocator.search.proof`), tried once after `Cuts.patience` failed candidates; if the result is "maybe", the
             search starts again, with a proof before each step that `ProofPatience` considers worth one

The first request that may end in a fatal error is the *horizon*. The proof, and the counts before the search, consider only the requests
before the horizon. Twins are used only if there is no horizon.

One peculiarity of the in-tree search is kept: if every alternative of the next request exceeds the limit of 32 devices per claim, the
search gives up the current request without trying further candidates, even one that would end in a fatal error. `WalkOutcome.EXCEEDED` is
the signal for that.

The stack is explicit, because its depth is the number of devices, which may be in the thousands.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from allocator.answer import MAX_RESULTS, AllocateError, Cause
from allocator.search.budget import ProofPatience, Recall, SearchSteps
from allocator.search.proof import Proof
from allocator.search.supply import ProofLimits
from allocator.search.symmetry import twins

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.problem import Leaf, PlacedUnit, SearchInput
    from dra.budget import Budget


class Solution(msgspec.Struct, frozen=True):
    """The leaf and the place (position) of every device, and the alternative that every request got."""

    chosen: tuple[tuple[int, int], ...]
    alternatives: tuple[int, ...]


class Cuts(msgspec.Struct, frozen=True):
    """What a search may skip (see the module docstring). No setting changes an answer; tests run all settings."""

    siblings: bool = True
    memo: bool = True
    twins: bool = True
    counts: bool = True
    values: bool = True
    proof: bool = True
    patience: int = 24  # failed candidates before the first proof
    limits: ProofLimits = ProofLimits()


class WalkOutcome(Enum):
    """The outcome of a step of the search. None instead of an outcome means that the stack is a solution."""

    DOWN = 0  # the stack has another entry, which is the next to try
    FAILED = 1
    EXCEEDED = 2  # failed because of the limit of devices per claim


class _Impatient(Exception):  # noqa: N818 - a signal
    """Raised when more than `Cuts.patience` candidates have failed, so that a proof is worth its cost."""


class _Fork(msgspec.Struct, gc=False):
    """An open request and the alternative that is being tried."""

    request: int
    next: int
    exceeded: bool  # all alternatives so far ended in EXCEEDED
    left: int
    common: int
    taken: int
    claim_devices: int  # devices that the claim has so far
    floor: int = 0  # lowest position for the first alternative that is tried: where the earlier twin's devices begin


class _DeviceSlot(msgspec.Struct, gc=False):
    """One device to place: the remaining candidates and the initial state."""

    request: int
    leaf: int
    wanted: int  # devices still needed, this one included
    start: int
    bits: int  # positions still to be tried
    left: int
    common: int
    taken: int
    claim_devices: int
    at: int = -1  # the position being tried
    exact: bool = False  # fewer bits than wanted means failure
    key: object = None
    tried_siblings: set[object] | None = None


class Walk:
    """One search over one problem."""

    def __init__(
        self,
        problem: SearchInput,
        cuts: Cuts,
        budget: Budget,
        fault: Callable[[Leaf, int], AllocateError],
    ) -> None:
        self.problem = problem
        self.cuts = cuts
        self.steps = SearchSteps(budget)
        self.fault = fault
        requests = problem.question.requests
        size = len(requests)
        self.horizon = size
        for at, request in enumerate(requests):
            demands = [problem.leaves[leaf.index] for leaf in request.leaves]
            if any(demand.faulty or demand.failing for demand in demands) or any(
                leaf.all and leaf.constraints for leaf in request.leaves
            ):
                self.horizon = at
                break
        regular = not problem.irregular
        self.siblings = cuts.siblings and regular
        self.twins = [-1] * size
        if cuts.twins and regular and self.horizon == size:
            self.twins = twins(problem, budget)
        most: dict[int, int] = {}
        for request in requests:
            counts = [problem.leaves[leaf.index].count for leaf in request.leaves]
            so_far = most.get(request.claim, 0)
            most[request.claim] = so_far + max(counts)
        self.weight = problem.weight
        self.limited = any(count > MAX_RESULTS for count in most.values())
        self.alternative = [0] * size
        self.first = [0] * size
        self.failed: dict[object, WalkOutcome] = {}
        self.canonical: dict[object, int] = {}
        self.patience = ProofPatience(-1)
        self.recall = Recall()
        self.guided = False
        self.proof = Proof(
            problem,
            cuts.limits,
            self.steps,
            self.horizon,
            limited=self.limited,
        )
        self.stack: list[_Fork | _DeviceSlot] = []

    def solve(self) -> Solution | None:
        """Find the first solution; None if there is none. Raises AllocateError and OutOfBudget."""
        demands = self.problem.leaves
        if self.cuts.counts:
            for request in self.problem.question.requests[: self.horizon]:
                if all(
                    demands[leaf.index].count > demands[leaf.index].candidates.bit_count() for leaf in request.leaves
                ):
                    return None
        provable = self.cuts.proof and not self.problem.irregular
        self.guided = False
        try:
            return self._run(ProofPatience(self.cuts.patience if provable else -1))
        except _Impatient:
            pass
        if not self.proof.possible(0, None, 0, 0, self.problem.left, self.problem.common, 0, 0):
            return None
        self.guided = True
        return self._run(ProofPatience(-1))

    # ---- the loop

    def _run(self, patience: ProofPatience) -> Solution | None:
        self.stack = []
        self.patience = patience
        step = self._open(0, self.problem.left, self.problem.common, 0, 0)
        while self.stack:
            frame = self.stack[-1]
            if type(frame) is _Fork:
                step = self._resume_fork(frame, step)
            elif self.problem.question.leaves[frame.leaf].all:  # type: ignore[union-attr]  # a frame is a fork or a slot
                step = self._resume_all(frame, step)  # type: ignore[arg-type]  # likewise
            else:
                step = self._resume_slot(frame, step)  # type: ignore[arg-type]  # likewise
            if step is None:
                return self._solution()
        if step is None:
            return self._solution()
        if step is WalkOutcome.EXCEEDED:
            problem = f"needs more than {MAX_RESULTS} devices, whatever alternatives are chosen"
            raise AllocateError("ResourceClaim", problem, Cause.TOO_MANY_DEVICES)
        return None

    def _solution(self) -> Solution:
        """Build the solution from the stack."""
        slots = tuple((entry.leaf, entry.at) for entry in self.stack if type(entry) is _DeviceSlot)
        forks = tuple(entry.next - 1 for entry in self.stack if type(entry) is _Fork)
        return Solution(slots, forks)

    def _open(self, request: int, left: int, common: int, taken: int, claim_devices: int) -> WalkOutcome | None:
        """Open the next request. If there is none, the stack is a solution: return None."""
        requests = self.problem.question.requests
        if request == len(requests):
            return None
        if request and requests[request].claim != requests[request - 1].claim:
            claim_devices = 0
        fork = _Fork(request, 0, True, left, common, taken, claim_devices)
        twin = self.twins[request]
        if twin >= 0:
            fork.next = self.alternative[twin]
            fork.floor = self.first[twin]
        self.stack.append(fork)
        return WalkOutcome.DOWN

    def _resume_fork(self, fork: _Fork, step: WalkOutcome | None) -> WalkOutcome | None:
        """Try the next alternative of a request."""
        at = fork.request
        request = self.problem.question.requests[at]
        first = step is WalkOutcome.DOWN
        while True:
            if not first:
                fork.exceeded = fork.exceeded and step is WalkOutcome.EXCEEDED
            if fork.next == len(request.leaves):
                self.stack.pop()
                is_first_of_claim = at == 0 or self.problem.question.requests[at - 1].claim != request.claim
                # The limit is per claim: the search continues with other devices for the earlier claims.
                ends_claim = fork.exceeded and not (is_first_of_claim and request.claim > 0)
                return WalkOutcome.EXCEEDED if ends_claim else WalkOutcome.FAILED
            leaf = request.leaves[fork.next]
            demand = self.problem.leaves[leaf.index]
            floor = fork.floor if first else 0
            self.alternative[at] = fork.next
            fork.next += 1
            first = False
            if leaf.all and not demand.items:
                step = WalkOutcome.FAILED
            elif demand.count <= 0:
                step = self._open(at + 1, fork.left, fork.common, fork.taken, fork.claim_devices)
            else:
                step = self._fill(
                    at,
                    leaf.index,
                    demand.count,
                    floor,
                    fork.left,
                    fork.common,
                    fork.taken,
                    fork.claim_devices,
                    fresh=True,
                )
            if step is WalkOutcome.DOWN or step is None:
                return step

    def _fill(  # noqa: PLR0917 - the hot path passes its state as plain integers
        self,
        request: int,
        leaf: int,
        wanted: int,
        start: int,
        left: int,
        common: int,
        taken: int,
        claim_devices: int,
        *,
        fresh: bool,
    ) -> WalkOutcome:
        """Start the search for one device."""
        if wanted > MAX_RESULTS - claim_devices:
            return WalkOutcome.EXCEEDED
        self.steps.spend(self.weight)
        slot = _DeviceSlot(request, leaf, wanted, start, 0, left, common, taken, claim_devices)
        demand = self.problem.leaves[leaf]
        if not self.problem.question.leaves[leaf].all:
            free = demand.candidates if self.problem.question.leaves[leaf].admin else demand.candidates & ~taken
            slot.bits = (free | demand.faulty) >> start << start
            slot.exact = self.cuts.counts and not demand.faulty and not demand.failing
            if slot.exact and slot.bits.bit_count() < wanted:
                return WalkOutcome.FAILED
            if self.failed and self._worth_remembering(fresh=fresh):
                slot.key = self._key(slot, fresh=fresh)
                known = self.failed.get(slot.key)
                self.recall.looked_up += not fresh
                if known is not None:
                    self.recall.recalled += not fresh
                    return known
        self.stack.append(slot)
        return WalkOutcome.DOWN

    def _resume_slot(self, slot: _DeviceSlot, step: WalkOutcome | None) -> WalkOutcome | None:
        """Try the next candidate for one device."""
        while True:
            if step is WalkOutcome.EXCEEDED:
                return self._give_up(slot, WalkOutcome.EXCEEDED)
            if step is WalkOutcome.FAILED:
                if self.patience.refuse():
                    raise _Impatient
                if self.siblings:
                    if slot.tried_siblings is None:
                        slot.tried_siblings = set()
                    slot.tried_siblings.add(self._sibling(slot.at, slot))
            candidate = self._next(slot)
            if candidate is None:
                return self._give_up(slot, WalkOutcome.FAILED)
            slot.at, after, agreed = candidate
            if slot.wanted == self.problem.leaves[slot.leaf].count:
                self.first[slot.request] = slot.at
            taken = slot.taken | ((1 << slot.at) & self.problem.dedicated)
            wanted, claim_devices = slot.wanted - 1, slot.claim_devices + 1
            if (
                self.guided
                and self.patience.is_worth_proof()
                and not self.proof.possible(
                    slot.request, slot.leaf, wanted, slot.at + 1, after, agreed, taken, claim_devices
                )
            ):
                self.patience.caught += 1
                step = WalkOutcome.FAILED
            elif wanted:
                step = self._fill(
                    slot.request, slot.leaf, wanted, slot.at + 1, after, agreed, taken, claim_devices, fresh=False
                )
            else:
                step = self._open(slot.request + 1, after, agreed, taken, claim_devices)
            if step is WalkOutcome.DOWN or step is None:
                return step

    def _next(self, slot: _DeviceSlot) -> tuple[int, int, int] | None:
        """Return the next candidate that fits, and the state with it. Like the in-tree search, raise the fault of a candidate before it."""
        problem, leaf = self.problem, self.problem.question.leaves[slot.leaf]
        demand, pairs = problem.leaves[slot.leaf], problem.pairs[slot.leaf]
        guards, common_guards, opened = problem.guards, problem.common_guards, problem.open
        left, common = slot.left, slot.common
        bits, wanted = slot.bits, slot.wanted
        examined = 0
        while bits:
            examined += 1
            if examined & 127 == 0:
                self.steps.spend(16 * self.weight)
            if slot.exact and bits.bit_count() < wanted:
                break
            low = bits & -bits
            at = low.bit_length() - 1
            bits ^= low
            if low & demand.faulty:
                # A device in use is skipped before its selectors are evaluated.
                bit = problem.admin_token(leaf.claim, at) if leaf.admin else problem.token(at)
                if bit >= 0 and not left >> bit & 1:
                    continue
                raise self.fault(leaf, at)
            flag, cost, join, again, join_again = pairs.get(at) or problem.pair(slot.leaf, at)
            if not left & flag:
                cost, join = again, join_again
            after, agreed = left - cost, common & join
            if after & guards != guards or (agreed + opened) & common_guards != common_guards:
                continue
            if problem.shared.counters and self._below_zero(at, left & flag, after):
                continue
            if at in demand.failing:
                raise self.fault(leaf, at)
            if slot.tried_siblings is not None and self._sibling(at, slot) in slot.tried_siblings:
                continue
            slot.bits = bits
            return at, after, agreed
        slot.bits = 0
        return None

    def _give_up(self, slot: _DeviceSlot, step: WalkOutcome) -> WalkOutcome:
        self.stack.pop()
        fresh = slot.wanted == self.problem.leaves[slot.leaf].count
        if self._worth_remembering(fresh=fresh):
            self.failed[slot.key or self._key(slot, fresh=fresh)] = step
        return step

    def _worth_remembering(self, *, fresh: bool) -> bool:
        """Return whether to remember failed states: always at the start of a request, but within a request only if that pays."""
        return self.cuts.memo and (fresh or self.recall.pays())

    def _resume_all(self, slot: _DeviceSlot, step: WalkOutcome | None) -> WalkOutcome | None:
        """Take the next device that a leaf with allocationMode All requires."""
        problem = self.problem
        if step is not WalkOutcome.DOWN:
            self.stack.pop()
            return step
        demand = problem.leaves[slot.leaf]
        item = demand.items[demand.count - slot.wanted]
        if item.refused:
            self.stack.pop()
            return WalkOutcome.FAILED
        flag, cost, join, again, join_again = problem.pair(slot.leaf, item.place)
        if not slot.left & flag:
            cost, join = again, join_again
        after, agreed = slot.left - cost, slot.common & join
        missing = ~after & problem.guards
        divided = ~(agreed + problem.open) & problem.common_guards
        of_constraints = missing & problem.shared.distinct_guards
        if (
            missing & ~of_constraints & ~problem.capacity_guards
            or divided & ~problem.shared.match_guards
            or (problem.shared.counters and self._below_zero(item.place, slot.left & flag, after))
        ):
            self.stack.pop()
            return WalkOutcome.FAILED
        if item.breaks_constraint or of_constraints or divided:
            raise self.fault(problem.question.leaves[slot.leaf], item.place)
        if item.lacks_capacity or missing:
            self.stack.pop()
            return WalkOutcome.FAILED
        slot.at = item.place
        taken = slot.taken | ((1 << slot.at) & problem.dedicated)
        wanted, claim_devices = slot.wanted - 1, slot.claim_devices + 1
        if wanted:
            step = self._fill(slot.request, slot.leaf, wanted, 0, after, agreed, taken, claim_devices, fresh=False)
        else:
            step = self._open(slot.request + 1, after, agreed, taken, claim_devices)
        if step is not WalkOutcome.DOWN and step is not None:
            self.stack.pop()
        return step

    # ---- checks and keys of a state

    def _below_zero(self, place: int, first: int, after: int) -> bool:
        """Return whether an irregular counter of the device's pool is below zero. Only the first share of a shareable device counts."""
        guards = self.problem.shared.counter_guards.get(place, 0)
        return after & guards != guards and (bool(first) or not self.problem.places[place].multi)

    def _unit_state(self, unit: PlacedUnit, start: int, left: int, common: int) -> int:
        """Return a number for a unit's state. States that differ only in the position or in interchangeable devices share a number."""
        pattern, places = unit.pattern, unit.places
        own_left = left >> unit.base & (1 << pattern.size) - 1
        own_common = common >> unit.common_base & (1 << pattern.common) - 1
        if start <= places[0]:
            below = 0
        elif start > places[-1]:
            below = len(places)
        else:
            below = bisect_left(places, start)
        key = unit.full, own_left, own_common, below
        number = self.canonical.get(key)
        if number is None:
            parts: list[object] = []
            single_left = own_left
            for group in unit.groups:
                if len(group) > 1:
                    parts.append(tuple(sorted(((own_left & own) >> shift, at < below) for at, own, shift in group)))
                    for _, own, _ in group:
                        single_left &= ~own
                elif group[0][0] < below:
                    parts.append(group[0][0])
            whole = unit.full, single_left, own_common, tuple(parts)
            number = self.canonical[key] = self.canonical.setdefault(whole, len(self.canonical))
        return number

    def _key(self, slot: _DeviceSlot, *, fresh: bool) -> object:
        """Return a key that equivalent states share."""
        problem = self.problem
        start = 0 if fresh else slot.start
        if problem.irregular:
            return slot.request, slot.leaf, slot.wanted, start, slot.left, slot.common, slot.claim_devices
        self.steps.spend(len(problem.units) * self.weight >> 2)
        return (
            slot.request,
            slot.leaf,
            slot.wanted,
            slot.left >> problem.local_bits,
            slot.common >> problem.local_common_bits,
            slot.claim_devices if self.limited else 0,
            tuple(sorted([self._unit_state(unit, start, slot.left, slot.common) for unit in problem.units])),
        )

    def _sibling(self, place: int, slot: _DeviceSlot) -> object:
        """Return a key that candidates share if they are interchangeable in the state of a slot."""
        number, member = self.problem.unit_of[place]
        unit = self.problem.units[number]
        for at, group in enumerate(unit.groups):
            for sibling, own, shift in group:
                if sibling == member:
                    state = self._unit_state(unit, slot.start, slot.left, slot.common)
                    left = slot.left >> unit.base
                    own_state = (left & own) >> shift
                    return state, at, own_state
        raise AssertionError("a device is a member of its unit")
