"""Finds what any program left behind: reservations of deleted pods, and allocations that no pod reserves.

Controllers and the ledger already remove these; the sweep runs every few minutes as a second line of defence. The cached pods may be older
than a claim, and the reservation of a deleted pod always remains for a moment. So a first finding is only a suspect. A suspect that the
next sweep finds again is reported and repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations.effects import FINALIZER, ClaimWrite, PatchReservedFor, Unallocate
from allocator.reservations.ledger import Busy

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.reservations.ledger import Ledger

Suspect = tuple[str, str]  # uid of a claim, and of the deleted pod; "" if no pod reserves the claim


class Sweep(msgspec.Struct, frozen=True):
    """The findings of a sweep, and the writes that repair them."""

    suspects: frozenset[Suspect] = frozenset()
    sentences: tuple[str, ...] = ()
    effects: tuple[ClaimWrite, ...] = ()


def sweep(ledger: Ledger, pods: Collection[str], before: Collection[Suspect] = ()) -> Sweep:
    """Return what was left behind. `pods` are the uids of all unfinished pods of all schedulers, `before` the suspects of the last sweep.

    Consumers other than pods stay in `reservedFor`. Claims that another program allocated without a reservation stay allocated.
    """
    suspects: set[Suspect] = set()
    sentences: list[str] = []
    effects: list[ClaimWrite] = []
    for uid, hold in ledger.holds.items():
        claim = hold.claim
        reserved_for = claim.status.reserved_for
        names = {consumer.uid: consumer.name for consumer in reserved_for if consumer.is_pod}
        # Pods that neither exist nor are in the ledger.
        missing_pods = {pod for pod in names if pod not in pods and pod not in ledger.reservations}
        ghosts = frozenset(missing_pods)
        needed = ledger.needs(hold)
        if hold.is_ours and claim.status.allocation is not None and not reserved_for and not needed:
            missing_pods.add("")
        if not missing_pods:
            continue
        found_suspects = {(uid, ghost) for ghost in missing_pods}
        suspects |= found_suspects
        confirmed = found_suspects & set(before)
        for _, ghost in sorted(confirmed):
            problem = f"is reserved for pod {names[ghost]}, which has ended or no longer exists" if ghost else ""
            sentences.append(f"claim {claim.metadata.key} {problem or 'is allocated, and no pod reserves it'}")
        if ledger.leading and hold.busy is Busy.IDLE and found_suspects == confirmed:
            remaining = tuple(consumer for consumer in reserved_for if consumer.uid not in ghosts)
            stays_allocated = remaining or needed or FINALIZER not in claim.metadata.finalizers
            effects.append(PatchReservedFor(claim, remaining) if stays_allocated else Unallocate(claim))
    return Sweep(frozenset(suspects), tuple(sentences), tuple(effects))
