"""What a process knows of its cluster: informers that share one quarantine, when all of them were read, and how current they are.

A process derives its own view from `ClusterView`: it lists the collections that it needs, and listens to them.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any

from cluster.errors import ApiError
from runtime.informers.informer import Informer
from runtime.informers.quarantine import Quarantine

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from cluster.protocol import Cluster, Reader
    from cluster.resources import Resource
    from cluster.server import Server
    from runtime.informers.informer import Health

logger = logging.getLogger("drawbridge.cluster")


class ClusterView:
    """The informers of a process."""

    def __init__(self, cluster: Cluster, *, retry: float = 1.0, extra: float = 3.0, server: float = 600.0) -> None:
        """Seconds between tries to reach a server, that an optional collection is waited for, and between looks at the server."""
        self._cluster = cluster
        self._retry = retry
        self._extra_seconds = extra
        self._server_seconds = server
        # Objects that could not be read or taken in: each is left out until it changes.
        self.quarantine = Quarantine()
        self._needed: Sequence[Informer[Any]] = ()
        self._extra: Sequence[Informer[Any]] = ()  # collections that a server may lack, though it serves their group
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
        """Make an informer of this view."""
        clock = asyncio.get_running_loop().time
        return Informer(
            reader or self._cluster, kind, fields=fields, quarantine=self.quarantine, trim=trim, clock=clock
        )

    async def follow(
        self,
        needed: Sequence[Informer[Any]],
        extra: Sequence[Informer[Any]] = (),
        *work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Follow until cancelled, and do `work` once everything was read."""
        self._needed, self._extra = needed, extra
        async with asyncio.TaskGroup() as group:
            for informer in (*needed, *extra):
                group.create_task(informer.run())
            for informer in needed:
                await informer.wait_for_sync(inf)
            for informer in extra:
                await informer.wait_for_sync(self._extra_seconds)
            self._on_sync()
            self._synced.set()
            for one in work:
                group.create_task(one())

    def _on_sync(self) -> None:
        """Do what follows from everything having been read, before others hear of it."""

    def _on_server(self, server: Server) -> None:
        """Take in what the server says of its version and feature gates."""

    async def learn_server(self) -> Server:
        """Ask the server for its version and feature gates until it answers."""
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
        """Ask again and again: servers are upgraded, and feature gates switched, while a process runs."""
        while True:
            await asyncio.sleep(self._server_seconds)
            await self.learn_server()

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    async def wait_for_sync(self, seconds: float = inf) -> None:
        """Wait until everything was read once, or for so long."""
        try:
            async with asyncio.timeout(seconds if seconds < inf else None):
                await self._synced.wait()
        except TimeoutError:
            return

    def what_is_unread(self) -> str:
        """Say what was not read yet; "" if everything was."""
        if self.is_synced:
            return ""
        waiting = [_named(one.health) for one in self._needed if not one.health.synced]
        return f"still reading {', '.join(waiting)}" if waiting else self._problem

    def ages(self) -> dict[str, float]:
        """Say of each collection that is needed how many seconds ago it was last known to be current."""
        now = asyncio.get_running_loop().time()
        return {one.resource.id: now - one.confirmed_at for one in self._needed}

    def age(self) -> float:
        """Say the age of the oldest of them; infinite until everything was read."""
        if not self.is_synced:
            return inf
        now = asyncio.get_running_loop().time()
        return now - min([one.confirmed_at for one in self._needed], default=now)

    def silent_for(self, seconds: float) -> str:
        """Name the collections that were not confirmed in that time; "" if all were."""
        since = asyncio.get_running_loop().time() - seconds
        read = [one.health for one in (*self._needed, *self._extra) if one.health.synced]
        return ", ".join(_named(health) for health in read if health.confirmed_at < since)


def _named(health: Health) -> str:
    return f"{health.resource} ({health.error})" if health.error else health.resource
