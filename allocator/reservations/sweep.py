"""What was left behind, by any program: reservations of pods that are gone, allocations that no pod reserves.

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

    from allocator.reservations.ledger import Ledger

Suspect = tuple[str, str]  # uid of a claim, and of the pod that is gone; "" if no pod reserves the claim


class Sweep(msgspec.Struct, frozen=True):
    """What a sweep found, and what it wants written."""

    suspects: frozenset[Suspect] = frozenset()
    sentences: tuple[str, ...] = ()
    effects: tuple[ClaimWrite, ...] = ()


def sweep(ledger: Ledger, pods: Collection[str], before: Collection[Suspect] = ()) -> Sweep:
    """Find what was left behind. `pods` are the uids of all pods that are not finished, ours or not.

    `before` are the suspects of the last sweep. Consumers that are no pods are left alone, and so are claims
    that another program allocated in advance, without reserving them.
    """
    suspects: set[Suspect] = set()
    sentences: list[str] = []
    effects: list[ClaimWrite] = []
    for uid, hold in ledger.holds.items():
        claim = hold.claim
        reserved_for = claim.status.reserved_for
        names = {one.uid: one.name for one in reserved_for if one.is_pod}
        # Pods that do not exist, and that the ledger does not know either.
        missed = {pod for pod in names if pod not in pods and pod not in ledger.reservations}
        ghosts = frozenset(missed)
        needed = ledger.needs(hold)
        if hold.is_ours and claim.status.allocation is not None and not reserved_for and not needed:
            missed.add("")
        if not missed:
            continue
        found = {(uid, ghost) for ghost in missed}
        suspects |= found
        known = found & set(before)
        for _, ghost in sorted(known):
            problem = f"is reserved for pod {names[ghost]}, which no longer exists" if ghost else ""
            sentences.append(f"claim {claim.metadata.key} {problem or 'is allocated, and no pod reserves it'}")
        if ledger.leading and hold.busy is Busy.IDLE and found == known:
            left = tuple(one for one in reserved_for if one.uid not in ghosts)
            whole = left or needed or FINALIZER not in claim.metadata.finalizers
            effects.append(PatchReservedFor(claim, left) if whole else Unallocate(claim))
    return Sweep(frozenset(suspects), tuple(sentences), tuple(effects))
