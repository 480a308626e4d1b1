"""The effects of a step, which `LiveLedger.apply` carries out. Each write is a patch with the claim's resourceVersion.

Each write results in one event for the ledger (`events`). A write contains complete lists, because a merge patch replaces lists. `Commits`
adds `allocationTimestamp`, because the ledger has no wall clock.
"""

from __future__ import annotations

import msgspec

from dra.objects import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from dra.policy import QuotaLine
from dra.stock import PoolId

FINALIZER = "resource.kubernetes.io/delete-protection"


class PatchFinalizer(msgspec.Struct, frozen=True):
    """Write `metadata.finalizers`: add our finalizer before an allocation, or remove it.

    The removal changes the claim's version. After that, an allocation whose write got no answer can no longer land.
    """

    claim: ResourceClaim  # the last seen claim, with the version on which the write is conditioned
    finalizers: tuple[str, ...]


class PatchAllocation(msgspec.Struct, frozen=True):
    """Write `status.allocation` with its timestamp, and `status.reservedFor`."""

    claim: ResourceClaim
    allocation: AllocationResult
    reserved_for: tuple[ResourceClaimConsumerReference, ...]


class PatchReservedFor(msgspec.Struct, frozen=True):
    claim: ResourceClaim
    reserved_for: tuple[ResourceClaimConsumerReference, ...]


class Unallocate(msgspec.Struct, frozen=True):
    """Remove `allocation`, `reservedFor` and `devices` from `status`."""

    claim: ResourceClaim


class Reread(msgspec.Struct, frozen=True):
    """Read a claim after a short pause; report `ClaimRead` or `ClaimGone`."""

    claim: ResourceClaim


class RereadPod(msgspec.Struct, frozen=True):
    """Read a pod; report `PodRead` or `PodGone`. The pod's devices are taken back only if it is not bound."""

    pod: str  # uid
    name: str  # namespace/name


class OverlayClaim(msgspec.Struct, frozen=True):
    """Use this version of a claim in decisions instead of the informer's version. If `claim` is None, use the informer's version again."""

    uid: str
    claim: ResourceClaim | None


class Declined(msgspec.Struct, frozen=True):
    """The event `Assume` changed nothing, because its decision is outdated. The caller should decide again."""

    token: str
    sentence: str


class Exceeded(msgspec.Struct, frozen=True):
    """The event `Assume` changed nothing, because the pod would exceed a limit of a quota."""

    token: str
    line: QuotaLine


class Ready(msgspec.Struct, frozen=True):
    """Every claim of the pod is reserved for it, so the pod may be bound to the node."""

    token: str
    pod: str  # uid
    node: str


class Dropped(msgspec.Struct, frozen=True):
    """A reservation ended before its pod was bound, or does not exist. The caller should decide again."""

    token: str
    pod: str  # uid, "" if the token is not known
    sentence: str


class PodEvent(msgspec.Struct, frozen=True):
    """Write an event about the pod."""

    pod: str  # uid
    sentence: str


class Freed(msgspec.Struct, frozen=True):
    """Devices were freed in these pools: requeue the pods that wait for devices."""

    pools: frozenset[PoolId]


class Requeue(msgspec.Struct, frozen=True):
    """Requeue these pods: their reservations ended, or the pause after a rejected write to their claims is over."""

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
    | Requeue
)
ClaimWrite = PatchFinalizer | PatchAllocation | PatchReservedFor | Unallocate
