"""Informers whose watch is open and delivers nothing."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager

import pytest

from cluster.errors import Unavailable
from cluster.informers.informer import Informer
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from tests.cluster.conftest import eventually
from tests.cluster.informers.running import QUICK_BACKOFF, FailingCluster, has_caught_up, running
from tests.cluster.objects import config_map
from tests.limits import PATIENCE


class MuteCluster(FailingCluster):
    """An embedded cluster whose next watches deliver only this many events each, and which may refuse lists."""

    def __init__(self, *event_limits, allows_lists=True):
        super().__init__()
        self._event_limits = deque(event_limits)
        self.allows_lists = allows_lists
        self.refused_lists = 0

    async def list(self, *args, **options):
        if not self.allows_lists:
            self.refused_lists += 1
            raise Unavailable("no answer")
        return await super().list(*args, **options)

    @asynccontextmanager
    async def watch(self, *args, **options):
        self.watch_options.append(options)
        async with self.inner.watch(*args, **options) as events:
            yield self._yield_some(events, self._event_limits.popleft()) if self._event_limits else events

    async def _yield_some(self, events, count):
        async for event in events:
            if count == 0:
                await asyncio.Event().wait()
            count -= 1
            yield event


@pytest.mark.parametrize("later_limits", [(), (0,) * 100], ids=["the first watch is silent", "all watches are silent"])
async def test_a_collection_with_silent_watches_is_listed_again(later_limits):
    mute_cluster = MuteCluster(1, *later_limits)  # only the bookmark that ends the streamed list arrives
    informer = Informer(mute_cluster, CONFIG_MAPS, "default", backoff=QUICK_BACKOFF, silence=0.1)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute_cluster.inner.create(CONFIG_MAPS, config_map("a"), "default")
        assert await has_caught_up(mute_cluster.inner, informer, "default")
        assert len(mute_cluster.watch_options) <= 2 or later_limits
    assert informer.full_list_count >= 2


async def test_distrust_of_a_watch_causes_a_list_at_once():
    mute_cluster = MuteCluster(1, *[0] * 100)
    informer = Informer(mute_cluster, CONFIG_MAPS, "default", backoff=QUICK_BACKOFF, silence=3600)
    informer.distrust_watch()  # no watch is open yet
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute_cluster.inner.create(CONFIG_MAPS, config_map("a"), "default")
        informer.distrust_watch()
        assert await has_caught_up(mute_cluster.inner, informer, "default")


async def test_only_received_data_confirms_a_cache():
    mute_cluster = MuteCluster(1, *[0] * 1000, allows_lists=False)
    informer = Informer(mute_cluster, CONFIG_MAPS, "default", backoff=QUICK_BACKOFF, silence=0.01)
    assert informer.confirmed_at == float("-inf")
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        confirmed_at = informer.confirmed_at
        assert confirmed_at > float("-inf")
        await eventually(lambda: asyncio.sleep(0, mute_cluster.refused_lists > 5))
        assert informer.confirmed_at == confirmed_at
        assert "no answer" in informer.error
        mute_cluster._event_limits.clear()
        mute_cluster.allows_lists = True
        await mute_cluster.inner.create(CONFIG_MAPS, config_map("a"), "default")
        await eventually(lambda: asyncio.sleep(0, informer.confirmed_at > confirmed_at))


async def test_a_cache_of_a_quiet_collection_is_confirmed_repeatedly(cluster, namespace):
    informer = Informer(cluster, RESOURCE_CLAIMS, namespace, watch_seconds=3, silence=30)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for _ in range(2):
            confirmed_before = informer.confirmed_at
            await eventually(
                lambda confirmed_before=confirmed_before: asyncio.sleep(0, informer.confirmed_at > confirmed_before)
            )
    assert informer.full_list_count == 1
    assert informer.error == ""
