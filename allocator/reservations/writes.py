"""What is to be written next to one claim: the difference between what its reservations need and what was seen.

At most one write at a time, conditioned on the version that was seen (rules 1 and 2 of `allocator.reservations.table`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.reservations.effects import FINALIZER, PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.ledger import Busy, with_consumers
from allocator.reservations.table import State

if TYPE_CHECKING:
    from allocator.reservations.effects import ClaimWrite
    from allocator.reservations.ledger import Hold, Ledger, Reservation
    from dra.objects import ResourceClaim

_BEING_WRITTEN = (State.COMMITTING, State.COMMITTED, State.DOUBT)


def next_write(ledger: Ledger, hold: Hold) -> ClaimWrite | None:
    """Say what has to be written to a claim now, if anything."""
    if hold.busy is not Busy.IDLE or hold.refusal:
        return None
    claim = hold.claim
    wanted: list[Reservation] = []
    leaving: set[str] = set()
    for pod in sorted(hold.users):
        user = ledger.reservations[pod]
        if user.state in _BEING_WRITTEN and pod not in hold.consumers:
            wanted.append(user)
        if user.state is State.RELEASED and not user.started:
            leaving.add(pod)
    listed = claim.status.reserved_for
    staying = tuple(consumer for consumer in listed if consumer.uid not in leaving)
    finalizers = claim.metadata.finalizers
    if wanted and not claim.metadata.deletion_timestamp:
        reserved_for = with_consumers(staying, wanted)
        if claim.status.allocation is not None:
            return PatchReservedFor(claim, reserved_for)
        if hold.intent is None:
            return None
        if FINALIZER not in finalizers:
            return PatchFinalizer(claim, (*finalizers, FINALIZER))
        return PatchAllocation(claim, hold.intent, reserved_for)
    needed = ledger.needs(hold)
    if len(staying) < len(listed):
        if needed and not staying and FINALIZER in finalizers:
            # Who needs it comes in the leaver's place, or goes, too. Meanwhile an allocation that nobody reserves would be nobody's to the next leader.
            return None
        if staying or FINALIZER not in finalizers:
            return PatchReservedFor(claim, staying)
        return Unallocate(claim)
    if needed:
        return None
    if hold.ours and claim.status.allocation is not None and not staying:
        return Unallocate(claim)
    return fence(claim) if hold.lost else None


def fence(claim: ResourceClaim) -> PatchFinalizer | None:
    """Change the version of a claim, so that an allocation without an answer cannot land any more."""
    if claim.status.allocation is not None or FINALIZER not in claim.metadata.finalizers:
        return None
    left = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    return PatchFinalizer(claim, left)
