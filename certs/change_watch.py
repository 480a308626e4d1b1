"""Watches the shared Secrets and the webhook configurations with the CA bundle, to wake `certs.store` after a change.

It reports that an object changed, but not which one, so the store reads all of them again. Without the permission to watch it reports
nothing, so the store must also read at intervals.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster import resources
from cluster.informers import Informer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol import Cluster

MIN_SECONDS = 0.2  # between two wake-ups, in case another program keeps undoing the store's writes


class ChangeWatch:
    """Watches Secrets of one namespace and webhook configurations by name."""

    def __init__(self, cluster: Cluster, *, namespace: str, secrets: Sequence[str], webhooks: Sequence[str]) -> None:
        kinds: list[tuple[resources.Resource[Any], str | None, Sequence[str]]] = [
            (resources.SECRETS, namespace, secrets),
            (resources.MUTATING_WEBHOOKS.raw, None, webhooks),
            (resources.VALIDATING_WEBHOOKS.raw, None, webhooks),
        ]
        self._informers = [
            Informer(cluster, kind, kind_namespace, fields=f"metadata.name={name}")
            for kind, kind_namespace, names in kinds
            for name in names
        ]
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""

        def wake(_: object) -> None:
            self._changed.set()

        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                informer.listen(wake)
                group.create_task(informer.run())

    async def wait(self, seconds: float) -> None:
        """Wait for a change, but no longer than `seconds`."""
        await asyncio.sleep(MIN_SECONDS if seconds > MIN_SECONDS else 0)
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
