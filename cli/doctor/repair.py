"""Putting right what was found: writes that hold only while the object is as it was seen, so that nothing newer is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from allocator.reservations import ClaimWrite, PatchAllocation, PatchFinalizer, PatchReservedFor, Unallocate
from cluster.errors import Conflict, NotFound
from cluster.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS

if TYPE_CHECKING:
    from cluster.protocol import Cluster
    from cluster.resources import Resource

_COLLECTIONS: dict[str, Resource[Any]] = {
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
}


class Removal(msgspec.Struct, frozen=True):
    """Delete an object, if it is still as it was seen."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str


Repair = ClaimWrite | Removal


def describe(repair: Repair) -> str:
    """Say what would be done."""
    match repair:
        case Removal():
            return "delete it"
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
    from allocator.service import write

    try:
        if isinstance(repair, Removal):
            where = _COLLECTIONS[repair.kind], repair.name, repair.namespace
            await cluster.delete(*where, uid=repair.uid, resource_version=repair.version)
        else:
            await write(cluster, repair)
    except NotFound:
        return "it is gone by now"
    except Conflict:
        return "it has changed meanwhile: look again"
    return ""
