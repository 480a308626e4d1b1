"""What a driver offers: whose devices they are, and what runs them. Each way to say what a node has makes one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from cluster import Cluster
    from node.service import NodePaths
    from runtime.http import Address


class Rim(NamedTuple):
    """The world that a driver stands in."""

    cluster: Cluster
    paths: NodePaths
    metrics: Address | None
    stop: asyncio.Event


class Offering(NamedTuple):
    """A driver's name, and the driver itself until it is told to stop."""

    name: str
    run: Callable[[Rim], Awaitable[None]]
