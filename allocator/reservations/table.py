"""The states of a pod's reservation and the transitions between them, all in `TABLE`.

Theory of operation
-------------------
The API server has the truth. The ledger caches this truth and adds what the allocator intends. A *reservation* belongs to one pod: a node,
and the claims that the pod needs there. A *hold* (`allocator.reservations.ledger`) belongs to one claim: the claim as it was seen last, the
allocation that we intend, and whether a write of ours may still land. Several reservations may need one claim: the first of them to commit
writes the allocation, the others only add their pods to `reservedFor`.

    PENDING ──ASSUME──▶ ASSUMED ──COMMIT──▶ COMMITTING ──ALLOCATED──▶ COMMITTED ──HELD──▶ RESERVED ──CONFIRMED──▶ BINDING ──PLACED──▶ BOUND
       ▲                   │                  │    ▲                      │                  │                      │                  │
       │                   │            UNKNOWN   KNOWN                UNKNOWN               │                      │                  │
       │                   │                  ▼    │                      │                  │                      │                  │
       │                   │                  DOUBT ◀─────────────────────┘                  │                      │                  │
       │                   └────────┬─────────┴──────────────────────────────────────────────┴──────────────────────┴────── DONE ──────┘
       └────────CLEAN──────── RELEASED

The input of the table is *signals*. Callers send some, such as ASSUME, COMMIT and UNRESERVE. All others are derived from facts about the
claims (ALLOCATED), the pod (PLACED, DONE), the clock (EXPIRED) and the election (FOLLOWED); see `Signal`. Many signals lead to RELEASED;
the picture shows only DONE. A signal without an entry for a state changes nothing. So events may come late, twice, in another order, or not
at all.

Rules that the table rests on
-----------------------------
1. **One write per claim at a time, conditioned on the version that was seen.** Of all writes conditioned on one version, at most
   one lands. The outcome of a write without an answer is therefore known as soon as the claim is seen at any other version, and
   until then the write may be repeated without harm.
2. **An intent stays until the claim shows its outcome.** If a reservation is released while the outcome of an allocation is unknown,
   its devices stay held. The ledger removes the finalizer, which was written before the allocation: that changes the claim's
   version, after which the write can no longer land.
3. **An allocation is written once.** It cannot be changed, only removed: when the last pod that needs it leaves, and only while no pod
   that uses it may have started. If a pod needs the claim and is not in `reservedFor` yet, the last entry of `reservedFor` stays until
   the pod is added or leaves: otherwise a new leader could not tell for which pod the allocation is.
4. **It is unknown whether a binding without an answer landed.** After the scheduler got `committed` (CONFIRMED), the pod may be bound at
   any moment. If the scheduler then releases the reservation, the pod keeps its devices for `Terms.grace`; a pod that is seen on its node
   in that time is bound. Informers lag, so before devices are taken from such a pod, the pod is read from the API server (`RereadPod`).
   Before CONFIRMED no binding can be under way, and devices are taken back at once. Reservations that a new leader finds in claims count
   as CONFIRMED.
5. **A follower writes nothing**; it only records what it observes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ReservationState(StrEnum):
    PENDING = "pending"  # not in the ledger
    ASSUMED = "assumed"  # held in the ledger until it expires; nothing is written
    COMMITTING = "committing"  # the claims are being written
    COMMITTED = "committed"  # every claim is allocated, but not every claim is reserved for the pod
    DOUBT = "doubt"  # a write has no answer, and the claims do not show its outcome yet
    RESERVED = "reserved"  # every claim is reserved for the pod; its scheduler has not got "committed" yet
    BINDING = "binding"  # the scheduler got "committed" and may bind the pod
    BOUND = "bound"  # the pod was seen on its node; its devices are not taken back any more
    RELEASED = "released"  # the reservation has ended; CLEAN removes it


class Signal(StrEnum):
    # from callers
    ASSUME = "assume"  # some claim is not reserved for the pod yet
    RETRY = "retry"  # an Assume whose claims are all reserved for the pod already
    COMMIT = "commit"
    UNRESERVE = "unreserve"
    CONFIRMED = "confirmed"  # the scheduler gets "committed": it may bind the pod
    UNUSABLE = "unusable"  # the allocated devices do not serve the pod
    # from the claims
    ALLOCATED = "allocated"  # every claim is allocated as intended
    HELD = "held"  # every claim is reserved for the pod
    # A claim is gone, was deallocated or allocated differently, or will never list the pod in `reservedFor`.
    MOOT = "moot"
    UNKNOWN = "unknown"  # a claim has a write without an answer
    KNOWN = "known"  # no claim has a write without an answer
    DENIED = "denied"  # the API server rejects a write
    CONTESTED = "contested"  # another claim holds the same devices
    CLEAN = "clean"  # no claim is reserved for the pod, and no claim has a request without an answer; or the pod has started
    FOUND = "found"  # claims are reserved for a pod without a reservation in the ledger
    # from the pod
    PLACED = "placed"  # the pod is on the reserved node
    ASTRAY = "astray"  # the pod is on another node
    DONE = "done"  # the pod is finished or gone
    # from the clock and the election
    EXPIRED = "expired"
    FOLLOWED = "followed"  # another replica leads


_S = ReservationState
_GIVE_UP = dict.fromkeys(
    (
        Signal.UNRESERVE,
        Signal.UNUSABLE,
        Signal.EXPIRED,
        Signal.MOOT,
        Signal.DENIED,
        Signal.CONTESTED,
        Signal.ASTRAY,
        Signal.DONE,
        Signal.FOLLOWED,
    ),
    _S.RELEASED,
)

TABLE: Mapping[ReservationState, Mapping[Signal, ReservationState]] = {
    _S.PENDING: {Signal.ASSUME: _S.ASSUMED, Signal.RETRY: _S.BINDING, Signal.FOUND: _S.BINDING},
    _S.ASSUMED: {**_GIVE_UP, Signal.ASSUME: _S.ASSUMED, Signal.COMMIT: _S.COMMITTING},
    _S.COMMITTING: {**_GIVE_UP, Signal.ALLOCATED: _S.COMMITTED, Signal.HELD: _S.RESERVED, Signal.UNKNOWN: _S.DOUBT},
    _S.COMMITTED: {**_GIVE_UP, Signal.HELD: _S.RESERVED, Signal.UNKNOWN: _S.DOUBT},
    _S.DOUBT: {**_GIVE_UP, Signal.KNOWN: _S.COMMITTING, Signal.HELD: _S.RESERVED},
    _S.RESERVED: {
        **_GIVE_UP,
        Signal.ASSUME: _S.ASSUMED,
        Signal.RETRY: _S.RESERVED,
        Signal.CONFIRMED: _S.BINDING,
        Signal.PLACED: _S.BOUND,
    },
    _S.BINDING: {
        # The pod may be bound at any moment, so UNRESERVE and UNUSABLE only shorten its time (rule 4).
        Signal.ASSUME: _S.ASSUMED,
        Signal.RETRY: _S.BINDING,
        Signal.PLACED: _S.BOUND,
        Signal.EXPIRED: _S.RELEASED,
        Signal.MOOT: _S.RELEASED,
        Signal.CONTESTED: _S.RELEASED,
        Signal.ASTRAY: _S.RELEASED,
        Signal.DONE: _S.RELEASED,
    },
    _S.BOUND: {Signal.DONE: _S.RELEASED},
    _S.RELEASED: {Signal.CLEAN: _S.PENDING, Signal.PLACED: _S.BOUND},
}
