"""Putting right what was found: writes that hold only while the object is as it was seen, so that nothing newer is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from allocator.reservations import ClaimWrite, PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from cluster.errors import AlreadyExists, Conflict, Invalid, NotFound
from cluster.patch import Operations
from cluster.resources import DEVICE_TAINT_RULES, NODES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.objects import ResourceClaim, ResourceClaimConsumerReference
from webhook.claims import taint_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol import Cluster
    from cluster.resources import Resource

_COLLECTIONS: dict[str, Resource[Any]] = {
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
    "DeviceTaintRule": DEVICE_TAINT_RULES,
}


class Removal(msgspec.Struct, frozen=True):
    """Delete an object, if it is still as it was seen."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str


class Fencing(msgspec.Struct, frozen=True):
    """Make the rule that fences a driver's devices."""

    driver: str


class Yielding(msgspec.Struct, frozen=True):
    """Take what claims hold away from them, as long as none of their pods is on a node."""

    claims: tuple[ResourceClaim, ...]


class Undressing(msgspec.Struct, frozen=True):
    """Take a condition away from a node, as long as it stands where it was seen, and says what it said."""

    node: str
    place: int
    condition: dict[str, Any]


Repair = ClaimWrite | Removal | Fencing | Yielding | Undressing


def describe(repair: Repair) -> str:
    """Say what would be done."""
    match repair:
        case Removal():
            return "delete it"
        case Fencing():
            return "make it: other schedulers give these devices to nobody then; running pods keep theirs"
        case Yielding(claims=claims):
            names = ", ".join(claim.metadata.key for claim in claims)
            return f"take the devices away from {names}, whose pods are on no node yet, so that they are placed again"
        case Undressing():
            return "take it away from the node"
        case Unallocate():
            return "take its allocation and its reservations away"
        case PatchReservedFor(reserved_for=left):
            kept = ", ".join(consumer.name for consumer in left) or "nobody"
            return f"reserve it for {kept}"
        case PatchFinalizer():
            return "take its finalizer off"
        case PatchAllocation():
            return "allocate it"
        case _:
            assert_never(repair)


async def put_right(cluster: Cluster, repair: Repair) -> str:
    """Do it; say why not, if the object is another by now. What the API server refuses is the caller's to tell."""
    try:
        match repair:
            case Removal():
                where = _COLLECTIONS[repair.kind], repair.name, repair.namespace
                await cluster.delete(*where, uid=repair.uid, resource_version=repair.version)
            case Fencing():
                await cluster.create(DEVICE_TAINT_RULES.raw, taint_rule(repair.driver))
            case Undressing():
                await _undress(cluster, repair)
            case Yielding():
                return await _yield(cluster, repair.claims)
            case _:
                await _write(cluster, repair)
    except AlreadyExists:
        return "there is one by now: look again"
    except NotFound:
        return "it is gone by now"
    except Conflict:
        return "it has changed meanwhile: look again"
    return ""


async def _undress(cluster: Cluster, repair: Undressing) -> None:
    path = f"/status/conditions/{repair.place}"
    as_seen = {"op": "test", "path": path, "value": repair.condition}
    patch = Operations((as_seen, {"op": "remove", "path": path}))
    try:
        await cluster.patch(NODES, repair.node, patch, subresource="status")
    except Invalid as error:  # what the server calls it if a test of a patch fails
        raise Conflict(str(error)) from None


async def _yield(cluster: Cluster, claims: Sequence[ResourceClaim]) -> str:
    """Read the pods again first: binding one changes no claim."""
    for claim in claims:
        for consumer in claim.status.reserved_for:
            if await _is_placed(cluster, claim.metadata.namespace, consumer):
                return f"pod {consumer.name} is on a node by now: look again"
        await _write(cluster, Unallocate(claim))
    return ""


async def _write(cluster: Cluster, effect: ClaimWrite) -> None:
    from allocator.service import write

    await write(cluster, effect)


async def _is_placed(cluster: Cluster, namespace: str, consumer: ResourceClaimConsumerReference) -> bool:
    try:
        pod = await cluster.get(PODS, consumer.name, namespace)
    except NotFound:
        return False
    return pod.metadata.uid == consumer.uid and bool(pod.spec.node_name)
