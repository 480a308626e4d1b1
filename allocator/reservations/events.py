"""The events of the ledger: from schedulers, the clock, the API server, and the election.

Any event may come late, twice, or in another order. `ClaimSeen` and `PodSeen` come from informers; `ClaimRead` and `PodRead` answer the
effects `Reread` and `RereadPod`. Every write (`allocator.reservations.effects`) results in exactly one of `Written`, `Conflicted`,
`Denied`, `Lost` or, if the claim does not exist any more, `ClaimGone`.
"""

from __future__ import annotations

import msgspec

from dra.objects import AllocationResult, Pod, ResourceClaim
from dra.policy import QuotaLine


class ClaimPart(msgspec.Struct, frozen=True):
    """A claim of a pod in the state on which the decision was based, and the new allocation if the claim has none yet."""

    claim: ResourceClaim
    allocation: AllocationResult | None = None


class Assume(msgspec.Struct, frozen=True):
    """Reserve these claims for a pod on a node. `generation` is the ledger's generation on which the decision was based.

    With `bound`, the pod is on the node already, and a claim that its status names is not allocated.
    """

    token: str
    pod: Pod
    node: str
    parts: tuple[ClaimPart, ...]
    generation: int
    quota: tuple[QuotaLine, ...] = ()
    bound: bool = False


class Unreserve(msgspec.Struct, frozen=True):
    token: str


class Commit(msgspec.Struct, frozen=True):
    token: str


class CommitConfirmed(msgspec.Struct, frozen=True):
    """The next answer to the scheduler is "committed". After this answer the scheduler may bind the pod."""

    token: str


class TakeBack(msgspec.Struct, frozen=True):
    """End the reservation of an unbound pod, because it cannot use its allocated claims. Deallocate those claims that no pod uses."""

    pod: str  # uid
    claims: tuple[str, ...]  # uids
    sentence: str


class Written(msgspec.Struct, frozen=True):
    """A write landed. `version` is the resourceVersion in the patch, `claim` the answer."""

    version: str
    claim: ResourceClaim


class Conflicted(msgspec.Struct, frozen=True):
    """A write did not land, because the claim now has another resourceVersion."""

    claim: str  # uid
    version: str


class Denied(msgspec.Struct, frozen=True):
    """The API server rejected a write as forbidden or invalid."""

    claim: str  # uid
    version: str
    sentence: str


class Lost(msgspec.Struct, frozen=True):
    """A write has no answer. It is unknown whether the write landed or may still land."""

    claim: str  # uid
    version: str


class ClaimSeen(msgspec.Struct, frozen=True):
    claim: ResourceClaim


class ClaimRead(msgspec.Struct, frozen=True):
    claim: ResourceClaim


class ClaimGone(msgspec.Struct, frozen=True):
    key: str  # namespace/name
    claim: str  # uid


class PodSeen(msgspec.Struct, frozen=True):
    """A pod of one of our schedulers."""

    pod: Pod


class PodRead(msgspec.Struct, frozen=True):
    """The answer to `RereadPod`."""

    pod: Pod


class PodGone(msgspec.Struct, frozen=True):
    pod: str  # uid


class Overlapped(msgspec.Struct, frozen=True):
    """These claims hold devices that must not be allocated together (`allocator.reservations.overlaps`)."""

    claims: frozenset[str]  # uids


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


class BecameLeader(msgspec.Struct, frozen=True):
    """From now on, this replica is the leader."""


class BecameFollower(msgspec.Struct, frozen=True):
    """This replica is no longer the leader."""


Event = (
    Assume
    | Unreserve
    | Commit
    | CommitConfirmed
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
