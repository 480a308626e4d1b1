"""Claims read by their names: an agent needs no right to list them, and reads no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from cluster import ApiError
from cluster.errors import NotFound
from cluster.resources import RESOURCE_CLAIMS
from dra.objects import ResourceClaim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster import Cluster

MOST_CLAIMS = 2000  # that are read in one look
AT_ONCE = 8
ClaimName = tuple[str, str]


class ClaimsRead(msgspec.Struct, frozen=True):
    """What was found, None of what is gone; and why not all was read."""

    claims: dict[ClaimName, ResourceClaim | None]
    unread: dict[str, str]


async def read_claims(cluster: Cluster, names: Sequence[ClaimName]) -> ClaimsRead:
    """Read claims, a few at once; of very many the first."""
    claims: dict[ClaimName, ResourceClaim | None] = {}
    unread: dict[str, str] = {}
    if len(names) > MOST_CLAIMS:
        unread["claims"] = f"{len(names)} are named here, and {MOST_CLAIMS} are read"
    turn = asyncio.Semaphore(AT_ONCE)

    async def read(namespace: str, name: str) -> None:
        async with turn:
            try:
                claim = await cluster.get(RESOURCE_CLAIMS, name, namespace)
                claims[namespace, name] = claim
            except NotFound:
                claims[namespace, name] = None
            except ApiError as error:
                unread["claims"] = str(error)

    chosen = names[:MOST_CLAIMS]
    await asyncio.gather(*(read(namespace, name) for namespace, name in chosen))
    return ClaimsRead(claims, unread)
