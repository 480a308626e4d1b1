"""The repairs of `doctor --repair`.

Each is a write that fails if the object has changed since doctor read it, so no later change is undone.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from allocator.reservations import effects
from cluster.errors import AlreadyExists, Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.finding import Finding
from dra.objects import ResourceClaim
from webhook.claims import taint_rule

if TYPE_CHECKING:
    from cluster.protocol import Cluster
    from cluster.resources import Resource

_COLLECTIONS: dict[str, Resource[Any]] = {
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
    "DeviceTaintRule": DEVICE_TAINT_RULES,
}


class Removal(msgspec.Struct, frozen=True):
    """Delete an object if it is unchanged."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str


class RuleCreation(msgspec.Struct, frozen=True):
    """Create the DeviceTaintRule that keeps other schedulers from a driver's devices."""

    driver: str


class Release(msgspec.Struct, frozen=True):
    """Deallocate claims, if none of their pods is on a node."""

    claims: tuple[ResourceClaim, ...]


class ConditionRemoval(msgspec.Struct, frozen=True):
    """Remove a condition from a node, if it is at the same index with the same content."""

    node: str
    place: int
    condition: dict[str, Any]


Repair = effects.ClaimWrite | Removal | RuleCreation | Release | ConditionRemoval


# The result of a rule with repairs: a finding, and its repair, or None if the object does not allow one.
Repairable = tuple[Finding, Repair | None]


def describe(repair: Repair) -> str:
    """Describe a repair."""
    match repair:
        case Removal():
            return "delete it"
        case RuleCreation():
            return "create it: other schedulers then no longer allocate these devices; running pods keep their devices"
        case Release(claims=claims):
            names = ", ".join(claim.metadata.key for claim in claims)
            return f"deallocate {names}, whose pods are on no node yet, so that schedulers place these pods again"
        case ConditionRemoval():
            return "remove it from the node"
        case effects.Unallocate():
            return "remove its allocation and its reservations"
        case effects.PatchReservedFor(reserved_for=left):
            remaining = ", ".join(consumer.name for consumer in left) or "no pod"
            return f"reserve it for {remaining}"
        case effects.PatchFinalizer():
            return "remove its finalizer"
        case effects.PatchAllocation():
            return "allocate it"
        case _:
            assert_never(repair)


async def _bound_consumer(cluster: Cluster, claim: ResourceClaim) -> str:
    """Return the name of a pod on a node for which a claim is reserved; "" if there is none."""
    for consumer in claim.status.reserved_for:
        with suppress(NotFound):
            pod = await cluster.get(PODS, consumer.name, claim.metadata.namespace)
            if pod.metadata.uid == consumer.uid and pod.spec.node_name:
                return consumer.name
    return ""


async def write_repair(cluster: Cluster, repair: Repair) -> str:
    """Write a repair. If the object has changed, return why the repair was not written. Raises other errors of the API server."""
    from allocator.service import write

    try:
        match repair:
            case Removal():
                where = _COLLECTIONS[repair.kind], repair.name, repair.namespace
                await cluster.delete(*where, uid=repair.uid, resource_version=repair.version)
            case RuleCreation():
                await cluster.create(DEVICE_TAINT_RULES.raw, taint_rule(repair.driver))
            case ConditionRemoval():
                path = f"/status/conditions/{repair.place}"
                as_seen = {"op": "test", "path": path, "value": repair.condition}
                patch = Operations((as_seen, {"op": "remove", "path": path}))
                try:
                    await cluster.patch(NODES, repair.node, patch, subresource="status")
                except Invalid as error:  # the server's answer if a test of a patch fails
                    raise Conflict(str(error)) from None
            case Release():
                released: list[str] = []
                for claim in repair.claims:
                    # Binding a pod changes no claim, so the pods are read again directly before the write.
                    if bound := await _bound_consumer(cluster, claim):
                        released_text = f"; released before: {', '.join(released)}" if released else ""
                        return f"pod {bound} is on a node now: run doctor again{released_text}"
                    await write(cluster, effects.Unallocate(claim))
                    released.append(claim.metadata.name)
            case _:
                await write(cluster, repair)
    except AlreadyExists:
        return "it exists now: run doctor again"
    except NotFound:
        return "it no longer exists"
    except Conflict:
        return "it has changed: run doctor again"
    return ""
