"""The data of the ledger: a `Hold` for each claim, a `Reservation` for each pod with devices, and a `PodFact` for each pod.

The ledger does no I/O and has no clock. `allocator.reservations.step` applies events to it.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.reservations.table import ReservationState
from dra.objects import AllocationResult, ResourceClaim, ResourceClaimConsumerReference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.stock import PoolId

MAX_CONSUMERS = 256  # the API server's limit for reservedFor
MAX_CHANGED = 16384  # pools and namespaces whose last change is recorded
FORGOTTEN = ""


class Terms(msgspec.Struct, frozen=True):
    """Time limits in seconds."""

    assumed: float = 120  # from a decision to its commit
    committing: float = 120  # from a commit to reserved claims
    reserved: float = 900  # from reserved claims to a binding: devices may take ten minutes to get ready
    grace: float = 30  # how long a pod that may be bound keeps its devices after its scheduler released them
    unusable: float = 10  # like `grace`, if the devices do not serve the pod
    found: float = 60  # like `reserved`, if a new leader found the claims reserved
    answer: float = 60  # from a write to its outcome; after that the write counts as lost
    memory: float = 600  # how long the uid of a deleted object is remembered, so that late events are ignored
    rest: float = 60  # longest pause before a claim is written again after the API server rejected a write


class Busy(StrEnum):
    """The request about a claim to which the API server has not answered yet."""

    IDLE = ""
    WRITING = "writing"
    READING = "reading"  # after a write that failed or has no answer


class Hold(msgspec.Struct, frozen=True):
    """What the ledger knows of one claim, and the allocation that it intends for the claim."""

    claim: ResourceClaim  # as it was seen last
    consumers: frozenset[str] = frozenset()  # uids of the pods in its reservedFor
    informer_version: str = ""  # the last version from the informer
    intent: AllocationResult | None = None  # the allocation that the reservations of its users need
    users: frozenset[str] = frozenset()  # uids of the pods whose reservation contains the claim
    busy: Busy = Busy.IDLE
    version: str = ""  # the resourceVersion in the last write
    since: float = 0  # when the current write or read began
    is_ours: bool = False  # the ledger allocated or adopted the claim, or it was in a `TakeBack`: deallocate it when no pod needs it
    lost: bool = False  # a write at the version that was seen last has no answer, and may still land
    rivals: frozenset[str] = frozenset()  # uids of claims that hold the same devices, if none of the claims can yield
    refusals: int = 0  # consecutive writes that the API server rejected
    refusal: str = ""  # why the last write was rejected; the claim is not written before `retry_at`
    retry_at: float = 0

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def last_version(self) -> str:
        """The version of the claim as it was seen last."""
        return self.claim.metadata.resource_version

    @property
    def unsettled(self) -> bool:
        """Whether a write or a read has no answer yet, so that the claim may still change."""
        return self.lost or self.busy is not Busy.IDLE


class Reservation(msgspec.Struct, frozen=True):
    """The claims of one pod on one node."""

    token: str
    pod: str  # uid
    name: str  # namespace/name
    node: str  # "" if the reservation was derived from claims whose allocation names no node
    claims: tuple[str, ...]  # uids
    state: ReservationState = ReservationState.PENDING
    until: float = inf
    awaited: bool = False  # a commit waits for RESERVED
    started: bool = False  # the pod was seen on the node
    planned_end: str = ""  # the signal that ends the reservation, unless `RereadPod` finds the pod bound
    sentence: str = ""  # why the reservation was released


class PodFact(msgspec.Struct, frozen=True):
    name: str  # namespace/name
    node: str = ""
    done: bool = False
    claims: tuple[str, ...] = ()  # keys of the pod's claims


class Ledger(msgspec.Struct, eq=False):
    """The state of the allocator. Only `step` changes it, and applies an event completely or not at all."""

    holds: dict[str, Hold] = {}  # by uid of the claim
    keys: dict[str, str] = {}  # namespace/name of a claim → its uid
    reservations: dict[str, Reservation] = {}  # by uid of the pod
    tokens: dict[str, str] = {}  # token → uid of the pod
    pods: dict[str, PodFact] = {}  # by uid
    # By uid: claims in their intended state, while the informer's copy differs from it.
    ahead: dict[str, ResourceClaim] = {}
    deleted: dict[str, float] = {}  # uid of a deleted object → time of the deletion
    # Pool or namespace → generation of its last change; FORGOTTEN → the same for all names that are not in the mapping.
    changed: dict[str, int] = {}
    generation: int = 0
    leading: bool = False
    terms: Terms = Terms()

    def changed_at(self, name: str) -> int:
        """Return the generation at or before which a pool or namespace changed last."""
        return self.changed.get(name, self.changed.get(FORGOTTEN, 0))

    def reservation_of(self, pod: str) -> Reservation | None:
        """Return the reservation of a pod; None if there is none, or if it is released."""
        reservation = self.reservations.get(pod)
        return None if reservation is None or reservation.state is ReservationState.RELEASED else reservation

    def unreleased(self) -> Iterator[Reservation]:
        return filter(None, map(self.reservation_of, self.reservations))

    def holds_of(self, reservation: Reservation) -> list[Hold]:
        """Return the holds of a reservation's claims, without claims that are gone."""
        return [self.holds[uid] for uid in reservation.claims if uid in self.holds]

    def needing(self, hold: Hold) -> Iterator[Reservation]:
        """Yield the reservations that need the intended allocation of a claim."""
        for pod in sorted(hold.users):
            if reservation := self.reservation_of(pod):
                yield reservation

    def needs(self, hold: Hold) -> bool:
        """Return whether any reservation needs the intended allocation of a claim."""
        return any(self.reservation_of(pod) for pod in hold.users)

    def as_intended(self, hold: Hold) -> ResourceClaim:
        """Return a claim as decisions see it: with the intended allocation if a reservation needs this or a write may still land."""
        claim = hold.claim
        status = claim.status
        if status.allocation is not None or hold.intent is None:
            return claim
        needing = list(self.needing(hold))
        if not needing and not hold.unsettled:
            return claim
        consumers = with_consumers(status.reserved_for, needing)
        intended = replace(status, allocation=hold.intent, reserved_for=consumers)
        return replace(claim, status=intended)


def hold_of(claim: ResourceClaim) -> Hold:
    """Return the hold for a claim that was just seen."""
    return Hold(claim, frozenset(consumer.uid for consumer in claim.status.reserved_for))


def pools_of(allocation: AllocationResult | None) -> frozenset[PoolId]:
    """Return the pools in which an allocation holds devices."""
    if allocation is None:
        return frozenset()
    results = allocation.devices.results
    return frozenset((result.driver, result.pool) for result in results if not result.admin_access)


def same_devices(first: AllocationResult | None, second: AllocationResult | None) -> bool:
    """Return whether two allocations give the same devices and shares to the same requests, in the same order."""
    if first is None or second is None:
        return first is second
    if first is second:
        return True
    results, other_results = (
        [
            (result.request, result.driver, result.pool, result.device, result.share_id)
            for result in allocation.devices.results
        ]
        for allocation in (first, second)
    )
    return results == other_results


def with_consumers(
    consumers: tuple[ResourceClaimConsumerReference, ...], reservations: list[Reservation]
) -> tuple[ResourceClaimConsumerReference, ...]:
    """Return the consumers of a claim with the pods of reservations added."""
    listed = {consumer.uid for consumer in consumers}
    added = [
        ResourceClaimConsumerReference(resource="pods", name=reservation.name.partition("/")[2], uid=reservation.pod)
        for reservation in reservations
        if reservation.pod not in listed
    ]
    return (*consumers, *added) if added else consumers
