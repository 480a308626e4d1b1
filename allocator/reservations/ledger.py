"""The ledger: what is known of claims and pods, and what is held for which pod. Values, and what they amount to.

It writes nothing to a cluster, asks nothing, and has no clock; `allocator.reservations.step` takes events into it.
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

MAX_CONSUMERS = 256  # entries of reservedFor that the API server takes


class Terms(msgspec.Struct, frozen=True):
    """How long things may last, in seconds."""

    assumed: float = 120  # from a decision to its commit
    committing: float = 120  # from a commit to reserved claims
    reserved: float = 900  # from reserved claims to a binding: devices may take ten minutes to get ready
    grace: float = 30  # the same, once the scheduler has let go of the pod
    unusable: float = (
        10  # the same, once its scheduler, which has let go of it before, was told that the pod needs others
    )
    found: float = 60  # the same, for what a leader finds when it begins
    answer: float = 60  # from a write to its outcome; after that it is lost
    memory: float = 600  # for what is gone: news of it that come later are old
    rest: float = 60  # at most, before a claim is written again whose writes the API server refuses


class Busy(StrEnum):
    """What a claim waits for."""

    IDLE = ""
    WRITING = "writing"  # the outcome of a write
    READING = "reading"  # a look at it, since its version is not known


class Hold(msgspec.Struct, frozen=True):
    """One claim."""

    claim: ResourceClaim  # as it was seen last
    consumers: frozenset[str] = frozenset()  # uids of the pods it says it is reserved for
    informer_version: str = ""  # the last version from the informer
    intent: AllocationResult | None = None  # what those who need it mean it to be allocated
    users: frozenset[str] = frozenset()  # pods with a reservation that names it
    busy: Busy = Busy.IDLE
    version: str = ""  # what the write under way is conditioned on
    since: float = 0  # and since when
    is_ours: bool = False  # its allocation was written by us
    lost: bool = False  # a write conditioned on the version we see has no answer, and may still land
    rivals: frozenset[str] = frozenset()  # claims that hold the same, with pods started on both sides
    refusals: int = 0  # writes that the API server has refused, one after the other
    refusal: str = ""  # why it did, for as long as the claim is not written again
    retry_at: float = 0  # until then

    @property
    def uid(self) -> str:
        """The uid of the claim."""
        return self.claim.metadata.uid

    @property
    def last_version(self) -> str:
        """The version of the claim as it was seen last."""
        return self.claim.metadata.resource_version

    @property
    def unsettled(self) -> bool:
        """Whether a write or a look has no answer yet: the claim may still become something else."""
        return self.lost or self.busy is not Busy.IDLE


class Reservation(msgspec.Struct, frozen=True):
    """What is held for one pod."""

    token: str
    pod: str  # uid
    name: str  # namespace/name
    node: str  # "" if claims alone tell of it, and name none
    claims: tuple[str, ...]  # uids
    state: ReservationState = ReservationState.PENDING
    until: float = inf
    awaited: bool = False  # a caller waits for it to be reserved
    started: bool = False  # its pod was seen on the node
    due: str = ""  # the signal that ends it, unless a look at the pod finds it bound
    sentence: str = ""  # why it was released


class PodFact(msgspec.Struct, frozen=True):
    """What matters of a pod."""

    name: str  # namespace/name
    node: str = ""
    done: bool = False
    claims: tuple[str, ...] = ()  # keys of the claims it names


class Ledger(msgspec.Struct, eq=False):
    """Everything. Only `step` changes it: an event is taken in as a whole, or not at all."""

    holds: dict[str, Hold] = {}  # by uid of the claim
    keys: dict[str, str] = {}  # namespace/name of a claim → its uid
    reservations: dict[str, Reservation] = {}  # by uid of the pod
    tokens: dict[str, str] = {}  # token → uid of the pod
    pods: dict[str, PodFact] = {}  # by uid
    ahead: dict[str, ResourceClaim] = {}  # what informers do not say yet, by uid
    deleted: dict[str, float] = {}  # uids that never come back → when they went
    changed: dict[str, int] = {}  # pool or namespace → generation of its last change
    generation: int = 0
    leading: bool = False
    terms: Terms = Terms()

    def needing(self, hold: Hold) -> Iterator[Reservation]:
        """List the reservations that need a claim as it is meant."""
        for pod in sorted(hold.users):
            reservation = self.reservations.get(pod)
            if reservation is not None and reservation.state is not ReservationState.RELEASED:
                yield reservation

    def needs(self, hold: Hold) -> bool:
        """Return whether any reservation needs the intent of a claim."""
        users = (self.reservations.get(pod) for pod in hold.users)
        return any(user is not None and user.state is not ReservationState.RELEASED for user in users)

    def as_meant(self, hold: Hold) -> ResourceClaim:
        """Return a claim as it counts: with its intended allocation, or that of a write whose outcome is unknown."""
        claim = hold.claim
        status = claim.status
        if status.allocation is not None or hold.intent is None:
            return claim
        needing = list(self.needing(hold))
        if not needing and not hold.unsettled:
            return claim
        consumers = with_consumers(status.reserved_for, needing)
        meant = replace(status, allocation=hold.intent, reserved_for=consumers)
        return replace(claim, status=meant)


def hold_of(claim: ResourceClaim) -> Hold:
    """Make a hold of a claim."""
    return Hold(claim, frozenset(consumer.uid for consumer in claim.status.reserved_for))


def pools_of(allocation: AllocationResult | None) -> frozenset[PoolId]:
    """Return the pools in which an allocation holds devices."""
    if allocation is None:
        return frozenset()
    results = allocation.devices.results
    return frozenset((result.driver, result.pool) for result in results if not result.admin_access)


def same_devices(one: AllocationResult | None, other: AllocationResult | None) -> bool:
    """Return whether two allocations are equal but for their timestamps."""
    if one is None or other is None:
        return one is other
    if one is other:
        return True
    results, other_results = (
        [(result.request, result.driver, result.pool, result.device, result.share_id) for result in of.devices.results]
        for of in (one, other)
    )
    return results == other_results


def with_consumers(
    consumers: tuple[ResourceClaimConsumerReference, ...], reservations: list[Reservation]
) -> tuple[ResourceClaimConsumerReference, ...]:
    """Add the pods of reservations to those a claim is reserved for."""
    have = {consumer.uid for consumer in consumers}
    more = [
        ResourceClaimConsumerReference(resource="pods", name=reservation.name.partition("/")[2], uid=reservation.pod)
        for reservation in reservations
        if reservation.pod not in have
    ]
    return (*consumers, *more) if more else consumers
