"""Tells when something changed that certificates depend on: the shared Secrets, or the webhook configurations with the bundle.

It says that one should look, never what there is to see; `certs.store` reads for itself. Where the right to watch is missing
it tells nothing, and its caller looks now and then anyway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster import resources
from runtime.informers import Informer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol import Cluster

# Between two looks at least, for a program that keeps undoing what is written.
LEAST_SECONDS = 0.2


class ChangeWatch:
    """Listens to Secrets of one namespace, and to webhook configurations, by their names."""

    def __init__(self, cluster: Cluster, *, namespace: str, secrets: Sequence[str], webhooks: Sequence[str]) -> None:
        kinds: list[tuple[resources.Resource[Any], str | None, Sequence[str]]] = [
            (resources.SECRETS, namespace, secrets),
            (resources.MUTATING_WEBHOOKS.raw, None, webhooks),
            (resources.VALIDATING_WEBHOOKS.raw, None, webhooks),
        ]
        self._informers = [
            Informer(cluster, kind, where, fields=f"metadata.name={name}")
            for kind, where, names in kinds
            for name in names
        ]
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Listen until cancelled."""

        def tell(_: object) -> None:
            self._changed.set()

        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                informer.listen(tell)
                group.create_task(informer.run())

    async def wait(self, seconds: float) -> None:
        """Wait for a change, or for so many seconds."""
        await asyncio.sleep(LEAST_SECONDS if seconds > LEAST_SECONDS else 0)
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
