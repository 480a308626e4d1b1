"""What was left behind, whoever left it: reservations of pods that are gone, allocations that nobody reserves.

Looked for every few minutes, as a second line: controllers take these back, and the ledger takes back its own. So nothing is
said or written about what was seen once only. A copy of the pods may be older than a claim, and every pod that goes leaves its
reservation for a moment: what is found becomes a suspect, and what was a suspect before is told and repaired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations.effects import FINALIZER, ClaimWrite, PatchReservedFor, Unallocate
from allocator.reservations.ledger import Busy

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.reservations.ledger import Hold, Ledger

Suspect = tuple[str, str]  # uid of a claim, and of the pod that is gone; "" if nobody reserves the claim


class Sweep(msgspec.Struct, frozen=True):
    """What a sweep found, and what it wants written."""

    suspects: frozenset[Suspect] = frozenset()
    sentences: tuple[str, ...] = ()
    effects: tuple[ClaimWrite, ...] = ()


def sweep(ledger: Ledger, pods: Collection[str], before: Collection[Suspect] = ()) -> Sweep:
    """Look for what was left behind. `pods` are the uids of all pods that are not finished, ours or not.

    `before` are the suspects of the last sweep. Consumers that are no pods are left alone, and so are claims
    that somebody else allocated in advance, without reserving them.
    """
    suspects: set[Suspect] = set()
    sentences: list[str] = []
    effects: list[ClaimWrite] = []
    for uid, hold in ledger.holds.items():
        ghosts = _ghosts(ledger, hold, pods)
        missed = set(ghosts)
        if _is_orphan(ledger, hold):
            missed.add("")
        if not missed:
            continue
        found = {(uid, ghost) for ghost in missed}
        suspects |= found
        known = found & set(before)
        sentences += [_sentence(hold, ghost) for _, ghost in sorted(known)]
        idle = hold.busy is Busy.IDLE
        if ledger.leading and idle and found == known:
            effects.append(_repair(ledger, hold, ghosts))
    return Sweep(frozenset(suspects), tuple(sentences), tuple(effects))


def _ghosts(ledger: Ledger, hold: Hold, pods: Collection[str]) -> frozenset[str]:
    """Name the pods a claim is reserved for that do not exist, and that the ledger does not know either."""
    listed = {one.uid for one in hold.claim.status.reserved_for if one.is_pod}
    return frozenset(uid for uid in listed if uid not in pods and uid not in ledger.reservations)


def _is_orphan(ledger: Ledger, hold: Hold) -> bool:
    """Say whether a claim has an allocation of ours that nobody needs."""
    status = hold.claim.status
    return hold.ours and status.allocation is not None and not status.reserved_for and not ledger.needs(hold)


def _repair(ledger: Ledger, hold: Hold, ghosts: frozenset[str]) -> ClaimWrite:
    claim = hold.claim
    left = tuple(one for one in claim.status.reserved_for if one.uid not in ghosts)
    if not left and not ledger.needs(hold) and FINALIZER in claim.metadata.finalizers:
        return Unallocate(claim)
    return PatchReservedFor(claim, left)


def _sentence(hold: Hold, ghost: str) -> str:
    name = hold.claim.metadata.key
    if not ghost:
        return f"claim {name} is allocated, and no pod reserves it"
    pod = next(one.name for one in hold.claim.status.reserved_for if one.uid == ghost)
    return f"claim {name} is reserved for pod {pod}, which does not exist any more"
