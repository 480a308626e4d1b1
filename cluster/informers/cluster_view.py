"""A process' view of its cluster: informers that share one quarantine, whether all have synced, and how current they are.

Each process derives a class from `ClusterView` with the collections that it needs.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from cluster.errors import ApiError
from cluster.informers.informer import Informer
from cluster.informers.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from cluster.protocol import Cluster, Reader
    from cluster.resources import Resource
    from cluster.server import ServerInfo

logger = logging.getLogger("drawbridge.cluster")


class ClusterView:
    def __init__(self, cluster: Cluster, *, retry: float = 1.0, extra: float = 3.0, server: float = 600.0) -> None:
        """Seconds: `retry` between tries to reach the server, `extra` to wait for optional collections, `server` between version checks."""
        self._cluster = cluster
        self._retry = retry
        self._extra_seconds = extra
        self._server_seconds = server
        self.quarantine = Quarantine()
        self._needed: Sequence[Informer[Any]] = ()
        self._extra: Sequence[Informer[Any]] = ()  # optional: a server may lack them, though it serves their group
        self._synced = asyncio.Event()
        self._problem = "the cluster was not read yet"

    def informer(
        self,
        kind: Resource[Any],
        *,
        fields: str = "",
        trim: Callable[[Any], Any] | None = None,
        reader: Reader | None = None,
    ) -> Informer[Any]:
        """Create an informer that shares the quarantine."""
        return Informer(reader or self._cluster, kind, fields=fields, quarantine=self.quarantine, trim=trim)

    async def follow(
        self,
        needed: Sequence[Informer[Any]],
        extra: Sequence[Informer[Any]] = (),
        *work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run the informers until cancelled, and `work` once those of `needed` have synced. Each of `extra` may delay `work` for a limited time."""
        self._needed, self._extra = needed, extra
        async with asyncio.TaskGroup() as group:
            for informer in (*needed, *extra):
                group.create_task(informer.run())
            for informer in needed:
                await informer.wait_for_sync()
            for informer in extra:
                await informer.wait_for_sync(self._extra_seconds)
            self._on_sync()
            self._synced.set()
            for coroutine_function in work:
                group.create_task(coroutine_function())

    def _on_sync(self) -> None:
        """Hook: the needed informers have synced; called before `is_synced` is set."""

    def _on_server(self, server: ServerInfo) -> None:
        """Hook: the server's version and feature gates were read."""

    async def learn_server(self) -> ServerInfo:
        """Read the server's version and feature gates; retry until the server answers."""
        while True:
            try:
                server = await self._cluster.server()
            except ApiError as error:
                self._problem = f"the API server does not answer: {error}"
                logger.warning("the API server does not answer", extra={"problem": str(error)})
                await asyncio.sleep(self._retry)
            else:
                self._on_server(server)
                return server

    async def watch_server(self) -> None:
        """Read the server's version and feature gates at intervals, because it can be upgraded or reconfigured."""
        while True:
            await asyncio.sleep(self._server_seconds)
            await self.learn_server()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_for_sync(self, seconds: float = inf) -> None:
        """Wait for `is_synced`, at most for this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._synced.wait()

    def what_is_unread(self) -> str:
        """Return which collections have not synced; "" if all have."""
        if self.is_synced:
            return ""
        waiting = [_name_with_error(informer) for informer in self._needed if not informer.is_synced]
        return f"still reading {', '.join(waiting)}" if waiting else self._problem

    def ages(self) -> dict[str, float]:
        """Return for each needed collection the seconds since it was last known to be current."""
        now = asyncio.get_running_loop().time()
        return {informer.resource.id: now - informer.confirmed_at for informer in self._needed}

    def age(self) -> float:
        """Return the highest age of a needed collection; infinite before `is_synced`."""
        if not self.is_synced:
            return inf
        now = asyncio.get_running_loop().time()
        return now - min([informer.confirmed_at for informer in self._needed], default=now)

    def silent_for(self, seconds: float) -> str:
        """Return the names of the collections that were not confirmed within this time; "" if all were."""
        since = asyncio.get_running_loop().time() - seconds
        synced = [informer for informer in (*self._needed, *self._extra) if informer.is_synced]
        return ", ".join(_name_with_error(informer) for informer in synced if informer.confirmed_at < since)


def _name_with_error(informer: Informer[Any]) -> str:
    return f"{informer.resource.id} ({informer.error})" if informer.error else informer.resource.id
