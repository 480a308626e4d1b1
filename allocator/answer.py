"""What an allocation attempt ends in: frozen values, the same for every caller.

`error` is for what ends the in-tree `Allocate` with an error: a fault in the objects, not a lack of devices; `cause` says which
where there is something to advise. `undecided`
means that the budget ran out or the caller lost patience; it promises nothing in either direction.
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


class Verdict(StrEnum):
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"
    ERROR = "error"


class Stage(StrEnum):
    """Where devices are lost, in the order in which they are looked at."""

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
    """What an error is about, of those about which there is something to advise."""

    MISSING_KEY = "missing key"
    MISSING_OBJECT = "missing object"
    INVALID_POOL = "invalid pool"
    INCOMPLETE_POOL = "incomplete pool"
    TOO_MANY_DEVICES = "too many devices"
    GATE_OFF = "gate off"


class Reason(msgspec.Struct, frozen=True):
    """How many of the devices that came as far as a stage were lost there, for one request."""

    stage: Stage
    claim: str = ""
    request: str = ""
    lost: int = 0
    of: int = 0
    examples: tuple[str, ...] = ()
    text: str = ""


class Granted(msgspec.Struct, frozen=True):
    """What one claim gets."""

    claim: str  # namespace/name
    allocation: AllocationResult


class Answer(msgspec.Struct, frozen=True):
    """The answer for one node."""

    verdict: Verdict
    allocations: tuple[Granted, ...] = ()
    reasons: tuple[Reason, ...] = ()
    error: str | None = None
    node_only: bool = False  # the error rules out this node only; tests compare that with Kubernetes
    steps: int = 0
    cause: Cause | None = None  # of the error
    explained: bool = True  # False if there was no time to find out what is in the way

    @property
    def feasible(self) -> bool:
        return self.verdict is Verdict.FEASIBLE

    @property
    def results(self) -> tuple[DeviceRequestAllocationResult, ...]:
        """The devices that all claims get."""
        return tuple(result for granted in self.allocations for result in granted.allocation.devices.results)

    @property
    def decided(self) -> bool | None:
        """Whether it is feasible; None where that was not decided."""
        return None if self.verdict is Verdict.UNDECIDED else self.feasible


def with_allocation(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    """Answer with the claim as it is once it has this allocation."""
    return replace(claim, status=ResourceClaimStatus(allocation=allocation))


class AllocateError(Exception):
    """What makes the in-tree allocator return an error: names the object and says what is wrong with it."""

    def __init__(self, where: str, what: str, cause: Cause | None = None) -> None:
        super().__init__(f"{where}: {what}")
        self.cause = cause


def fail(error: AllocateError | NodeSelectorError, steps: int = 0) -> Answer:
    """Answer with an error that was met."""
    cause = error.cause if isinstance(error, AllocateError) else None
    return Answer(Verdict.ERROR, error=str(error), steps=steps, cause=cause)


def as_granted(claims: Sequence[ResourceClaim], answer: Answer) -> tuple[ResourceClaim, ...]:
    """Answer with claims as they are with what a feasible answer gives them."""
    pairs = zip(claims, answer.allocations, strict=True)
    return tuple(with_allocation(claim, granted.allocation) for claim, granted in pairs)
