"""The states of a pod's reservation, what may happen to it, and what becomes of it: the whole of it is in `TABLE`.

Theory of operation
-------------------
The API server is the truth; the ledger is a cache with intent. A *reservation* is what is held for one pod: one node, and
the claims it needs there. A *hold* (`allocator.reservations.ledger`) is what the ledger knows of one claim: as it was seen
last, what we mean it to be allocated, and whether a write of ours may still land. Several reservations may need one
claim: the first to commit writes its allocation, the others only reserve it.

    PENDING ──ASSUME──▶ ASSUMED ──COMMIT──▶ COMMITTING ──ALLOCATED──▶ COMMITTED ──HELD──▶ RESERVED ──TOLD──▶ BINDING ──PLACED──▶ BOUND
       ▲                   │                  │    ▲                      │                  │                 │                  │
       │                   │            UNKNOWN   KNOWN                UNKNOWN               │                 │                  │
       │                   │                  ▼    │                      │                  │                 │                  │
       │                   │                  DOUBT ◀─────────────────────┘                  │                 │                  │
       │                   └────────┬─────────┴──────────────────────────────────────────────┴─────────────────┴────── DONE ──────┘
       └────────CLEAN──────── RELEASED

Nothing is told the table but *signals*. Some are asked for (ASSUME, COMMIT, UNRESERVE, TOLD, UNUSABLE); all others are read off from facts:
from what the claims say (ALLOCATED, HELD, MOOT, UNKNOWN, KNOWN, CLEAN), from what the pod says (PLACED, DONE), from the
clock (EXPIRED), from the leader (FOLLOWED). A signal without an entry changes nothing: what comes late, twice or in another
order is legal, and never an error. So no state depends on having heard everything.

Rules that the table rests on
-----------------------------
1. **One write a claim at a time, conditioned on the version that was seen.** Of all writes conditioned on one version at most
   one lands. A write without an answer is therefore decided as soon as the claim is seen at any other version, and may be
   repeated until then without harm.
2. **An intent lives until the claim says otherwise.** A reservation that is released while the outcome of an allocation is
   unknown leaves its devices held. The finalizer, written before the allocation, is taken away from such a claim: that
   changes its version, after which the write can no longer land.
3. **An allocation is written once** and cannot be changed, only taken back, by the last pod that needs it, and only while
   no pod that uses it may have been started. While one needs it that is not written into it yet, the last pod to leave stays
   in it: a leader that came then would not know for which pod it is.
4. **It is unknown whether a binding without an answer landed.** A pod whose scheduler was told that it may be bound keeps what it has for
   a while (`Terms.grace`) after its scheduler released it, and what is seen on its node in that time is bound. Nor does an informer say
   everything in time: before anything is taken from such a pod, the pod itself is looked at (`RereadPod`). Until its scheduler was told, no
   binding is under way, and what the pod has is taken back at once. What a new leader finds in claims counts as told.
5. **A follower writes nothing**; what it hears, it records.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ReservationState(StrEnum):
    PENDING = "pending"  # not in the ledger
    ASSUMED = "assumed"  # held here until it expires; nothing is written
    COMMITTING = "committing"  # being written
    COMMITTED = "committed"  # every claim is allocated; not every one is reserved for the pod
    DOUBT = "doubt"  # a write was not answered, and the claims do not tell yet
    RESERVED = "reserved"  # every claim is reserved for the pod; its scheduler was not told that it may be bound
    BINDING = "binding"  # it was: the pod may be bound
    BOUND = "bound"  # the pod was seen on its node: nothing is taken from it any more
    RELEASED = "released"  # let go of; forgotten once the claims say so


class Signal(StrEnum):
    # what is asked for
    ASSUME = "assume"  # with claims that are not all reserved for the pod yet
    RETRY = "retry"  # the same, but all of them are
    COMMIT = "commit"
    UNRESERVE = "unreserve"
    TOLD = "told"  # the scheduler, that the pod may be bound
    UNUSABLE = "unusable"  # what is allocated does not serve the pod
    # what the claims say
    ALLOCATED = "allocated"  # each as we mean it
    HELD = "held"  # and reserved for the pod
    MOOT = "moot"  # one is gone, or being deleted, or was allocated otherwise
    UNKNOWN = "unknown"  # one has a write without an answer
    KNOWN = "known"  # none has, any more
    DENIED = "denied"  # the API server refuses a write for good
    CONTESTED = "contested"  # another claim holds what we hold
    CLEAN = "clean"  # none is reserved for the pod, and none will be by us
    FOUND = "found"  # the claims are reserved for a pod that the ledger does not know
    # what the pod says
    PLACED = "placed"  # it is on the node that was meant
    ASTRAY = "astray"  # it is on another
    DONE = "done"  # it is finished or gone
    # the rest
    EXPIRED = "expired"
    FOLLOWED = "followed"  # another replica leads


_S, _W = ReservationState, Signal
_GIVE_UP = dict.fromkeys(
    (_W.UNRESERVE, _W.UNUSABLE, _W.EXPIRED, _W.MOOT, _W.DENIED, _W.CONTESTED, _W.ASTRAY, _W.DONE, _W.FOLLOWED),
    _S.RELEASED,
)

TABLE: Mapping[ReservationState, Mapping[Signal, ReservationState]] = {
    _S.PENDING: {_W.ASSUME: _S.ASSUMED, _W.RETRY: _S.BINDING, _W.FOUND: _S.BINDING},
    _S.ASSUMED: {**_GIVE_UP, _W.ASSUME: _S.ASSUMED, _W.COMMIT: _S.COMMITTING},
    _S.COMMITTING: {**_GIVE_UP, _W.ALLOCATED: _S.COMMITTED, _W.HELD: _S.RESERVED, _W.UNKNOWN: _S.DOUBT},
    _S.COMMITTED: {**_GIVE_UP, _W.HELD: _S.RESERVED, _W.UNKNOWN: _S.DOUBT},
    _S.DOUBT: {**_GIVE_UP, _W.KNOWN: _S.COMMITTING, _W.HELD: _S.RESERVED},
    _S.RESERVED: {
        **_GIVE_UP,
        _W.ASSUME: _S.ASSUMED,
        _W.RETRY: _S.RESERVED,
        _W.TOLD: _S.BINDING,
        _W.PLACED: _S.BOUND,
    },
    _S.BINDING: {
        # The pod may be on its way to its node: letting go of it only shortens its time (rule 4).
        _W.ASSUME: _S.ASSUMED,
        _W.RETRY: _S.BINDING,
        _W.PLACED: _S.BOUND,
        _W.EXPIRED: _S.RELEASED,
        _W.MOOT: _S.RELEASED,
        _W.CONTESTED: _S.RELEASED,
        _W.ASTRAY: _S.RELEASED,
        _W.DONE: _S.RELEASED,
    },
    _S.BOUND: {_W.DONE: _S.RELEASED},
    _S.RELEASED: {_W.CLEAN: _S.PENDING, _W.PLACED: _S.BOUND},
}
