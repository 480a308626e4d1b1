"""What the ledger wants done. Writes are patches with the claim's resourceVersion in them, and end in one event each.

The lists in a write are whole: a merge patch replaces lists. `allocationTimestamp` is added by the writer of the allocation,
together with it: it is a time of the wall, the ledger knows none.
"""

from __future__ import annotations

import msgspec

from dra.objects import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from dra.policy import QuotaLine
from dra.stock import PoolId

FINALIZER = "resource.kubernetes.io/delete-protection"


class PatchFinalizer(msgspec.Struct, frozen=True):
    """Write `metadata.finalizers`: with ours before an allocation, without it so that a lost one cannot land any more."""

    claim: ResourceClaim  # as it was seen: name, uid and the version to condition the write on
    finalizers: tuple[str, ...]


class PatchAllocation(msgspec.Struct, frozen=True):
    """Write `status.allocation` with its timestamp, and `status.reservedFor`."""

    claim: ResourceClaim
    allocation: AllocationResult
    reserved_for: tuple[ResourceClaimConsumerReference, ...]


class PatchReservedFor(msgspec.Struct, frozen=True):
    """Write `status.reservedFor`."""

    claim: ResourceClaim
    reserved_for: tuple[ResourceClaimConsumerReference, ...]


class Unallocate(msgspec.Struct, frozen=True):
    """Write `status` without allocation and without reservations, as the controllers do."""

    claim: ResourceClaim


class Reread(msgspec.Struct, frozen=True):
    """Get a claim and report it as `ClaimRead`, or `ClaimGone`. After a write without an answer: not at once."""

    claim: ResourceClaim


class RereadPod(msgspec.Struct, frozen=True):
    """Get a pod and report it as `PodRead`, or `PodGone`: nothing is taken from it before it is known not to be bound."""

    pod: str  # uid
    name: str  # namespace/name


class OverlayClaim(msgspec.Struct, frozen=True):
    """Count a claim like this from now on, whatever informers say of it; None: as they say."""

    uid: str
    claim: ResourceClaim | None


class Declined(msgspec.Struct, frozen=True):
    """An Assume was not taken: something else was, meanwhile. Decide again."""

    token: str
    sentence: str


class Exceeded(msgspec.Struct, frozen=True):
    """An Assume was not taken: a quota's line would be crossed."""

    token: str
    line: QuotaLine


class Ready(msgspec.Struct, frozen=True):
    """Every claim of the pod is reserved for it: it may be bound to the node."""

    token: str
    pod: str  # uid
    node: str


class Dropped(msgspec.Struct, frozen=True):
    """A reservation ended before its pod was bound, or was never known: decide again."""

    token: str
    pod: str  # uid, "" if the token is not known
    sentence: str


class PodEvent(msgspec.Struct, frozen=True):
    """Write an event about the pod."""

    pod: str  # uid
    sentence: str


class Freed(msgspec.Struct, frozen=True):
    """Something in these pools may be had again: pods that wait for it are worth a try."""

    pools: frozenset[PoolId]


class Wake(msgspec.Struct, frozen=True):
    """A pod whose reservation has been taken back is worth another try."""

    pods: frozenset[str]  # uids


Effect = (
    PatchFinalizer
    | PatchAllocation
    | PatchReservedFor
    | Unallocate
    | Reread
    | RereadPod
    | OverlayClaim
    | Declined
    | Exceeded
    | Ready
    | Dropped
    | PodEvent
    | Freed
    | Wake
)
ClaimWrite = PatchFinalizer | PatchAllocation | PatchReservedFor | Unallocate
