"""Informers whose watch is open and delivers nothing."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager

import pytest

from cluster.errors import Unavailable
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from runtime.informers.informer import Informer
from tests.cluster.conftest import eventually
from tests.cluster.objects import config_map
from tests.limits import PATIENCE
from tests.runtime.informers.running import QUICK, Trouble, agrees, running


class Mute(Trouble):
    """An embedded cluster whose next watches deliver only this many events each, and which may refuse lists."""

    def __init__(self, *after, lists=True):
        super().__init__()
        self._after = deque(after)
        self.is_listed = lists
        self.refused = 0

    async def list(self, *args, **options):
        if not self.is_listed:
            self.refused += 1
            raise Unavailable("no answer")
        return await super().list(*args, **options)

    @asynccontextmanager
    async def watch(self, *args, **options):
        self.watched.append(options)
        async with self.inner.watch(*args, **options) as events:
            yield self._muted(events, self._after.popleft()) if self._after else events

    async def _muted(self, events, count):
        async for event in events:
            if count == 0:
                await asyncio.Event().wait()
            count -= 1
            yield event


@pytest.mark.parametrize("later", [(), (0,) * 100], ids=["once", "each one"])
async def test_a_collection_with_silent_watches_is_listed_again(later):
    mute = Mute(1, *later)  # only the bookmark that ends the streamed list arrives
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=0.1)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        assert await agrees(mute.inner, informer, "default")
        assert len(mute.watched) <= 2 or later
    assert informer.reads >= 2


async def test_a_distrusted_watch_ends_at_once_and_causes_a_list():
    mute = Mute(1, *[0] * 100)
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=3600)
    informer.distrust_watch()  # no watch is open yet
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        informer.distrust_watch()
        assert await agrees(mute.inner, informer, "default")


async def test_only_received_data_confirms_a_cache():
    mute = Mute(1, *[0] * 1000, lists=False)
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=0.01)
    assert informer.confirmed_at == float("-inf")
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        confirmed = informer.confirmed_at
        assert confirmed > float("-inf")
        await eventually(lambda: asyncio.sleep(0, mute.refused > 5))
        assert informer.confirmed_at == confirmed
        assert "no answer" in informer.error
        mute._after.clear()
        mute.is_listed = True
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        await eventually(lambda: asyncio.sleep(0, informer.confirmed_at > confirmed))


async def test_a_cache_of_a_quiet_collection_is_confirmed_repeatedly(cluster, home):
    informer = Informer(cluster, RESOURCE_CLAIMS, home, watch_seconds=3, silence=30)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for _ in range(2):
            before = informer.confirmed_at
            await eventually(lambda before=before: asyncio.sleep(0, informer.confirmed_at > before))
    assert informer.reads == 1
    assert informer.failures == 0
