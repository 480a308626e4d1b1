"""Whether the devices of claims may be bound to: the conditions that their drivers named (KEP-5007).

Mirrors `isClaimReadyForBinding` and `isClaimTimeout` of the in-tree plugin: every result with binding conditions needs an entry in
status.devices with all of them true, in time after the allocation; one failure condition that is true ends it. Entries are found by
driver, pool and device alone. One thing is otherwise: a failure counts although a device before it has said nothing yet.
"""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

import msgspec

from dra.objects import results_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import ResourceClaim


class DeviceReadiness(msgspec.Struct, frozen=True):
    """What keeps a pod from being bound: a final failure, or a condition that is still missing; both "" if nothing does."""

    failed: str = ""
    waits_for: str = ""


def devices_ready(claims: Iterable[ResourceClaim]) -> DeviceReadiness:
    """Judge all devices of some claims."""
    waits_for = ""
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
                    return DeviceReadiness(failed=f"{name} says {condition}")
            missing = [condition for condition in result.binding_conditions if condition not in true]
            if missing and not waits_for:
                waits_for = f"waits for {name} to say {', '.join(missing)}"
    return DeviceReadiness(waits_for=waits_for)


def latest_binding(claim: ResourceClaim, seconds: float) -> float:
    """Return the deadline of devices that are not ready, in seconds since 1970."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp:
        return inf
    try:
        allocated = datetime.fromisoformat(allocation.allocation_timestamp)
    except ValueError:
        return inf
    return allocated.timestamp() + seconds


def unusable(claim: ResourceClaim, now: float, seconds: float) -> str:
    """Return why the allocation of a claim cannot become ready any more; "" if it is or may become ready."""
    readiness = devices_ready([claim])
    if readiness.failed:
        return f"claim {claim.metadata.key}: {readiness.failed}"
    if readiness.waits_for and now > latest_binding(claim, seconds):
        return f"claim {claim.metadata.key}: {readiness.waits_for}, for more than {seconds:g} s"
    return ""
