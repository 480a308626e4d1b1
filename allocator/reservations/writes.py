"""What is to be written next to one claim: the difference between what its reservations need and what was seen.

At most one write at a time, conditioned on the version that was seen (rules 1 and 2 of `allocator.reservations.table`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.reservations.effects import FINALIZER, PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from allocator.reservations.ledger import Busy, with_consumers
from allocator.reservations.table import State
from dra.objects import is_reserved_for

if TYPE_CHECKING:
    from allocator.reservations.effects import ClaimWrite
    from allocator.reservations.ledger import Hold, Ledger
    from dra.objects import ResourceClaim

_BEING_WRITTEN = (State.COMMITTING, State.COMMITTED, State.DOUBT)


def next_write(ledger: Ledger, hold: Hold) -> ClaimWrite | None:
    """Say what has to be written to a claim now, if anything."""
    if hold.busy is not Busy.IDLE:
        return None
    claim = hold.claim
    users = [ledger.reservations[pod] for pod in sorted(hold.users)]
    wanted = [user for user in users if user.state in _BEING_WRITTEN and not is_reserved_for(claim, user.pod)]
    leaving = {user.pod for user in users if user.state is State.RELEASED and not user.started}
    staying = tuple(consumer for consumer in claim.status.reserved_for if consumer.uid not in leaving)
    if wanted and not claim.metadata.deletion_timestamp:
        reserved_for = with_consumers(staying, wanted)
        if claim.status.allocation is not None:
            return PatchReservedFor(claim, reserved_for)
        if hold.intent is None:
            return None
        if FINALIZER not in claim.metadata.finalizers:
            return PatchFinalizer(claim, (*claim.metadata.finalizers, FINALIZER))
        return PatchAllocation(claim, hold.intent, reserved_for)
    if len(staying) < len(claim.status.reserved_for):
        if not staying and not ledger.needed(hold) and FINALIZER in claim.metadata.finalizers:
            return Unallocate(claim)
        return PatchReservedFor(claim, staying)
    if ledger.needed(hold):
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
