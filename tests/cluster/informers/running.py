"""Run an informer in the background, also on a cluster that fails."""

import asyncio
import contextlib
from collections import deque
from contextlib import asynccontextmanager

from cluster.embedded.embedded import Embedded
from cluster.informers.backoff import Backoff
from cluster.resources import metadata
from tests.cluster.conftest import eventually
from tests.limits import PATIENCE

QUICK_BACKOFF = Backoff(least=0.001, most=0.01)


@asynccontextmanager
async def running(informer):
    """Run an informer in the background, and stop it at the end."""
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(informer.run())
        try:
            yield informer
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def has_caught_up(cluster, informer, namespace):
    """Wait until the informer's cache has the versions of the cluster's objects."""

    async def is_equal():
        items = (await cluster.list(informer.resource, namespace)).items
        cluster_versions = {
            (item.metadata.namespace, item.metadata.name): item.metadata.resource_version for item in items
        }
        return cluster_versions == {key: metadata(obj).resource_version for key, obj in informer.objects.items()}

    return await eventually(is_equal)


class FailingCluster:
    """An embedded cluster whose next lists and watches fail with these errors; None is a call that succeeds.

    `breaks` is for watches that were opened: how many events pass, and the error that is raised instead of the next event.
    """

    def __init__(self, *, lists=(), watches=(), breaks=()):
        self.inner = Embedded()
        self._lists, self._watches, self._breaks = deque(lists), deque(watches), deque(breaks)
        self.list_count, self.watch_options, self.request_times = 0, [], []

    async def list(self, *args, **options):
        self.list_count += 1
        if self._lists and (error := self._lists.popleft()):
            raise error
        return await self.inner.list(*args, **options)

    @asynccontextmanager
    async def watch(self, *args, **options):
        self.watch_options.append(options)
        self.request_times.append(asyncio.get_running_loop().time())
        if self._watches and (error := self._watches.popleft()):
            raise error
        end = self._breaks.popleft() if self._breaks else None
        async with self.inner.watch(*args, **options) as events:
            yield self._yield_until_error(events, *end) if end else events

    async def _yield_until_error(self, events, count, error):
        """Yield a number of events, then raise an error instead of the next event."""
        async for event in events:
            if count == 0:
                raise error
            count -= 1
            yield event
