"""A whole collection at once, for those who look once and do not follow: snapshots, `explain`, `doctor`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from cluster.errors import Gone
from cluster.protocol import Page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.protocol import Cluster
    from cluster.resources import Resource

T = TypeVar("T")
# A collection that changes faster than it can be read is asked for in one piece in the end.
_TRIES = 3


async def everything(
    cluster: Cluster,
    resource: Resource[T],
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: str = "",
    limit: int = 0,
) -> Page[T]:
    """Read all pages as one. Begins anew where the server has forgotten the version of the first page."""
    limit = limit or resource.page

    async def read(more: str) -> Page[T]:
        return await cluster.list(resource, namespace, labels=labels, fields=fields, limit=limit, more=more)

    for _ in range(_TRIES):
        with suppress(Gone):
            return await _joined(read)
    limit = 0
    return await read("")


async def _joined(read: Callable[[str], Awaitable[Page[T]]]) -> Page[T]:
    page = await read("")
    items, unreadable = [*page.items], [*page.unreadable]
    while page.more:
        page = await read(page.more)
        items.extend(page.items)
        unreadable.extend(page.unreadable)
    return Page(tuple(items), page.resource_version, "", tuple(unreadable))
