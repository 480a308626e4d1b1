"""Run an informer in the background, also on a cluster that fails."""

import asyncio
import contextlib
from collections import deque
from contextlib import asynccontextmanager

from cluster.embedded.embedded import Embedded
from cluster.resources import metadata
from runtime.informers.backoff import Backoff
from tests.cluster.conftest import eventually
from tests.limits import PATIENCE

QUICK = Backoff(least=0.001, most=0.01)


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


async def agrees(cluster, informer, home):
    """Wait until the informer's cache has the versions of the cluster's objects."""

    async def look():
        items = (await cluster.list(informer.resource, home)).items
        have = {(item.metadata.namespace, item.metadata.name): item.metadata.resource_version for item in items}
        return have == {where: metadata(obj).resource_version for where, obj in informer.objects.items()}

    return await eventually(look)


class Trouble:
    """An embedded cluster whose next lists and watches fail with these errors; None is a call that succeeds.

    `breaks` is for watches that were opened: how many events pass, and the error that is raised instead of the next event.
    """

    def __init__(self, *, lists=(), watches=(), cut=()):
        self.inner = Embedded()
        self._lists, self._watches, self._cut = deque(lists), deque(watches), deque(cut)
        self.listed, self.watched, self.request_times = 0, [], []

    async def list(self, *args, **options):
        self.listed += 1
        if self._lists and (error := self._lists.popleft()):
            raise error
        return await self.inner.list(*args, **options)

    @asynccontextmanager
    async def watch(self, *args, **options):
        self.watched.append(options)
        self.request_times.append(asyncio.get_running_loop().time())
        if self._watches and (error := self._watches.popleft()):
            raise error
        cut = self._cut.popleft() if self._cut else None
        async with self.inner.watch(*args, **options) as events:
            yield self._passed(events, cut) if cut else events

    async def _passed(self, events, cut):
        """Yield a number of events, then raise an error instead of the next event."""
        count, error = cut
        async for event in events:
            if count == 0:
                raise error
            count -= 1
            yield event
