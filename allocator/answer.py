"""The outcome of an allocation attempt: frozen values, the same for every caller.

The verdict `error` is an error of the in-tree `Allocate`: a fault in the objects, not a lack of devices. `cause` is set for faults with
a known remedy. `undecided` means that the budget was used up or the caller stopped waiting.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import AllocationResult, ResourceClaim, ResourceClaimStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.errors import NodeSelectorError
    from dra.objects import DeviceRequestAllocationResult


MAX_RESULTS = 32  # resourceapi.AllocationResultsMaxSize: devices a claim may hold


class SearchVerdict(StrEnum):
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"
    ERROR = "error"


class Stage(StrEnum):
    """The checks that can rule out a device, in the order in which the allocator makes them."""

    NODE = "node"
    POOL = "pool"
    GATE = "gate"
    CLASS = "class"
    SELECTOR = "selector"
    TAINT = "taint"
    IN_USE = "in use"
    GROUPS = "groups"
    COMPATIBILITY = "compatibility"
    COUNTERS = "counters"
    CAPACITY = "capacity"
    CONSTRAINT = "constraint"
    SEARCH = "search"


class Cause(StrEnum):
    """The kind of an error for which a remedy is known."""

    MISSING_KEY = "missing key"
    MISSING_OBJECT = "missing object"
    INVALID_POOL = "invalid pool"
    INCOMPLETE_POOL = "incomplete pool"
    TOO_MANY_DEVICES = "too many devices"
    GATE_OFF = "gate off"


class Rejection(msgspec.Struct, frozen=True):
    """The number of devices that a stage rejected for one request, of the `total` that reached this stage."""

    stage: Stage
    claim: str = ""
    request: str = ""
    rejected: int = 0
    total: int = 0
    examples: tuple[str, ...] = ()
    text: str = ""
    # For the author of the claim, who knows the selectors of requests and cannot change those of classes: the class, or the published values of the
    # attributes that the selector reads.
    short: str = ""


class Granted(msgspec.Struct, frozen=True):
    """The allocation of one claim."""

    claim: str  # namespace/name
    allocation: AllocationResult


class NodeAnswer(msgspec.Struct, frozen=True):
    """The answer for one node."""

    verdict: SearchVerdict
    allocations: tuple[Granted, ...] = ()
    reasons: tuple[Rejection, ...] = ()
    error: str | None = None
    node_only: bool = False  # the error concerns only this node; tests compare this field with Kubernetes
    steps: int = 0
    cause: Cause | None = None  # of the error
    explained: bool = True  # False if the budget was too small to find the reasons

    @property
    def feasible(self) -> bool:
        return self.verdict is SearchVerdict.FEASIBLE

    @property
    def results(self) -> tuple[DeviceRequestAllocationResult, ...]:
        """The devices of all claims."""
        return tuple(result for granted in self.allocations for result in granted.allocation.devices.results)

    @property
    def decided(self) -> bool | None:
        """Whether the claims are feasible; None if undecided."""
        return None if self.verdict is SearchVerdict.UNDECIDED else self.feasible


def with_allocation(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    """Return the claim with this allocation."""
    return replace(claim, status=ResourceClaimStatus(allocation=allocation))


class AllocateError(Exception):
    """An error of the in-tree allocator: the object, and what is wrong with it."""

    def __init__(self, where: str, problem: str, cause: Cause | None = None, *, node_only: bool = False) -> None:
        super().__init__(f"{where}: {problem}")
        self.cause = cause
        self.node_only = node_only


def fail(error: AllocateError | NodeSelectorError, steps: int = 0) -> NodeAnswer:
    """Return the answer for an error."""
    cause = error.cause if isinstance(error, AllocateError) else None
    return NodeAnswer(SearchVerdict.ERROR, error=str(error), steps=steps, cause=cause)


def as_granted(claims: Sequence[ResourceClaim], answer: NodeAnswer) -> tuple[ResourceClaim, ...]:
    """Return the claims with the allocations of a feasible answer."""
    pairs = zip(claims, answer.allocations, strict=True)
    return tuple(with_allocation(claim, granted.allocation) for claim, granted in pairs)
