"""Whether a pod may be bound to the devices of its claims: the binding conditions of their drivers (KEP-5007).

Mirrors `isClaimReadyForBinding` and `isClaimTimeout` of the in-tree plugin. Every result with binding conditions needs an entry in
status.devices in which all these conditions are true. There is a deadline, counted from the allocation. One true failure condition is
final. An entry is found by driver, pool and device, without the share ID. There is one difference from the in-tree plugin: a failure
counts even if a device before it has no entry yet.
"""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from dra.objects import results_of
from dra.reason import Actor, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import ResourceClaim


def why_unready(claims: Iterable[ResourceClaim]) -> Reason | None:
    """Return why a pod cannot be bound: the first failure of all devices; if none failed, the first missing conditions; else None."""
    missing: Reason | None = None
    for claim in claims:
        entries = {(entry.driver, entry.pool, entry.device): entry for entry in claim.status.devices}
        for result in results_of(claim):
            if not result.binding_conditions:
                continue
            entry = entries.get((result.driver, result.pool, result.device))
            conditions = entry.conditions if entry is not None else ()
            true = {condition.type for condition in conditions if condition.status == "True"}
            name = f"device {result.device} of {result.driver}"
            for condition in result.binding_failure_conditions:
                if condition in true:
                    return Reason(text=f"{name} reports {condition}", actor=Actor.DRIVER, never=True)
            lacking = ", ".join([condition for condition in result.binding_conditions if condition not in true])
            if lacking and missing is None:
                missing = Reason(text=f"waits for {name} to report {lacking}", actor=Actor.DRIVER)
    return missing


def latest_binding(claim: ResourceClaim, seconds: float) -> float:
    """Return the time by which a claim's devices must be ready, in seconds since 1970."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp:
        return inf
    try:
        allocated = datetime.fromisoformat(allocation.allocation_timestamp)
    except ValueError:
        return inf
    return allocated.timestamp() + seconds


def unusable(claim: ResourceClaim, now: float, seconds: float) -> str:
    """Return why the devices of a claim will never be ready; "" if they are ready or may become ready."""
    reason = why_unready([claim])
    if reason is not None and reason.never:
        return f"claim {claim.metadata.key}: {reason.text}"
    if reason is not None and now > latest_binding(claim, seconds):
        return f"claim {claim.metadata.key}: {reason.text}, for more than {seconds:g} s"
    return ""
