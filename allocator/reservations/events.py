"""The events that the ledger takes: from those who ask, the clock, the API server, and the election.

Any event may come late, twice, or in another order. `ClaimSeen` and `PodSeen` are what an informer says; `ClaimRead` is the answer
of a read that was asked for. Every write (`allocator.reservations.effects`) ends in exactly one of `Written`, `Conflicted`,
`Denied`, `Lost` or, if the claim is not there, `ClaimGone`.
"""

from __future__ import annotations

import msgspec

from dra.objects import AllocationResult, Pod, ResourceClaim
from dra.policy import QuotaLine


class ClaimPart(msgspec.Struct, frozen=True):
    """One claim of a pod: as the decision saw it, and what it is to be given if it has nothing yet."""

    claim: ResourceClaim
    allocation: AllocationResult | None = None


class Assume(msgspec.Struct, frozen=True):
    """Hold these claims for a pod on a node. `basis` is the generation of the ledger that the decision rests on."""

    token: str
    pod: Pod
    node: str
    parts: tuple[ClaimPart, ...]
    basis: int
    quota: tuple[QuotaLine, ...] = ()


class Unreserve(msgspec.Struct, frozen=True):
    token: str


class Commit(msgspec.Struct, frozen=True):
    token: str


class BindingReported(msgspec.Struct, frozen=True):
    """The scheduler is told, right after this, that the pod may be bound."""

    token: str


class TakeBack(msgspec.Struct, frozen=True):
    """What claims of a pod without a node are allocated does not serve it: the pod gives it back, and what no pod has is free."""

    pod: str  # uid
    claims: tuple[str, ...]  # uids
    sentence: str


class Written(msgspec.Struct, frozen=True):
    """A write landed. `version` is the one it was conditioned on, `claim` what the server answered."""

    version: str
    claim: ResourceClaim


class Conflicted(msgspec.Struct, frozen=True):
    """A write did not land, since the claim has another version by now."""

    claim: str  # uid
    version: str


class Denied(msgspec.Struct, frozen=True):
    """A write did not land, and will not as long as things are as they are: forbidden, or invalid."""

    claim: str  # uid
    version: str
    sentence: str


class Lost(msgspec.Struct, frozen=True):
    """It is unknown whether a write landed, or will."""

    claim: str  # uid
    version: str


class ClaimSeen(msgspec.Struct, frozen=True):
    claim: ResourceClaim


class ClaimRead(msgspec.Struct, frozen=True):
    claim: ResourceClaim


class ClaimGone(msgspec.Struct, frozen=True):
    """A claim is not there any more. `version` is the last one it is known to have had, if that is known."""

    key: str  # namespace/name
    claim: str  # uid


class PodSeen(msgspec.Struct, frozen=True):
    """A pod that is ours to place, or was."""

    pod: Pod


class PodRead(msgspec.Struct, frozen=True):
    """A pod as the API server has it now, since `RereadPod` asked for it."""

    pod: Pod


class PodGone(msgspec.Struct, frozen=True):
    pod: str  # uid


class Overlapped(msgspec.Struct, frozen=True):
    """These claims hold together what must not be held together (`allocator.reservations.overlaps`)."""

    claims: frozenset[str]  # uids


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class BecameLeader(msgspec.Struct, frozen=True):
    """We lead from now on."""


class BecameFollower(msgspec.Struct, frozen=True):
    """We do not lead any more."""


Event = (
    Assume
    | Unreserve
    | Commit
    | BindingReported
    | TakeBack
    | Written
    | Conflicted
    | Denied
    | Lost
    | ClaimSeen
    | ClaimRead
    | ClaimGone
    | PodSeen
    | PodRead
    | PodGone
    | Overlapped
    | Tick
    | BecameLeader
    | BecameFollower
)
