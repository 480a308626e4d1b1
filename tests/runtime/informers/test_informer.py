"""Informers: on both clusters as they are, and on the embedded one with the trouble that real ones make."""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from contextlib import asynccontextmanager

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import BadRequest, ConfigError, Gone, Invalid, Throttled, Unavailable
from cluster.protocol import Change
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS, metadata
from runtime.informers.backoff import Backoff
from runtime.informers.informer import Informer
from tests.cluster.conftest import eventually
from tests.cluster.objects import claim, config_map
from tests.limits import PATIENCE

QUICK = Backoff(least=0.001, most=0.01)


@asynccontextmanager
async def running(informer):
    """Run an informer in the background, and see it end."""
    async with asyncio.timeout(PATIENCE):
        task = asyncio.ensure_future(informer.run())
        try:
            yield informer
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def record(informer):
    """Record each batch of a listener: its deltas as (name, old, new), and the copy at that moment."""
    heard = []

    def listener(batch):
        deltas = [(delta.key[1], delta.old is not None, delta.new is not None) for delta in batch.deltas]
        heard.append((deltas, sorted(name for _, name in informer.objects)))

    informer.listen(listener)
    return heard


async def agrees(cluster, informer, home):
    """Wait until the copy is what the cluster has."""

    async def look():
        found = (await cluster.list(informer.resource, home)).items
        have = {(one.metadata.namespace, one.metadata.name): one.metadata.resource_version for one in found}
        return have == {where: metadata(one).resource_version for where, one in informer.objects.items()}

    return await eventually(look)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "listed"])
async def test_a_copy_begins_whole_and_follows(cluster, home, stream):
    for name in ("a", "b", "c"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), home)
    informer = Informer(cluster, RESOURCE_CLAIMS, home, page=2, stream=stream)
    heard = record(informer)
    assert not informer.health.synced
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert heard == [([("a", False, True), ("b", False, True), ("c", False, True)], ["a", "b", "c"])]
        await cluster.patch(RESOURCE_CLAIMS, "a", Merge({"metadata": {"labels": {"x": "y"}}}), home)
        await cluster.delete(RESOURCE_CLAIMS, "b", home)
        await cluster.create(RESOURCE_CLAIMS, claim("d"), home)
        assert await agrees(cluster, informer, home)
    assert heard[1:] == [
        ([("a", True, True)], ["a", "b", "c"]),
        ([("b", True, False)], ["a", "c"]),
        ([("d", False, True)], ["a", "c", "d"]),
    ]


async def test_an_empty_collection_is_synced_too(cluster, home):
    informer = Informer(cluster, RESOURCE_CLAIMS, home)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    assert informer.health.synced
    assert dict(informer.objects) == {}


class Counting:
    """A cluster that knows how many watches it has opened."""

    def __init__(self, inner):
        self._inner = inner
        self.watches = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def watch(self, *args, **options):
        self.watches += 1
        return self._inner.watch(*args, **options)


async def test_a_watch_that_ends_is_resumed_where_it_was(cluster, home):
    counting = Counting(cluster)
    informer = Informer(counting, RESOURCE_CLAIMS, home, watch_seconds=0.1)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for number in range(4):
            before = counting.watches
            await eventually(lambda before=before: asyncio.sleep(0, counting.watches > before))
            await cluster.create(RESOURCE_CLAIMS, claim(f"c-{number}"), home)
        assert await agrees(cluster, informer, home)
    assert informer.health.reads == 1


async def test_a_late_listener_hears_what_is_there():
    cluster = Embedded()
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    informer = Informer(cluster, CONFIG_MAPS)
    async with running(informer):
        await informer.wait_for_sync(PATIENCE)
        assert record(informer) == [([("a", False, True)], ["a"])]


async def test_a_wait_for_sync_that_times_out_returns_false():
    assert not await Informer(Embedded(), CONFIG_MAPS).wait_for_sync(0.01)


class Trouble:
    """An embedded cluster whose next lists and watches fail as told. `None` is a call that works."""

    def __init__(self, *, lists=(), watches=(), cut=()):
        self.inner = Embedded()
        self._lists, self._watches, self._cut = deque(lists), deque(watches), deque(cut)
        self.listed, self.watched, self.asked = 0, [], []

    async def list(self, *args, **options):
        self.listed += 1
        if self._lists and (error := self._lists.popleft()):
            raise error
        return await self.inner.list(*args, **options)

    @asynccontextmanager
    async def watch(self, *args, **options):
        self.watched.append(options)
        self.asked.append(asyncio.get_running_loop().time())
        if self._watches and (error := self._watches.popleft()):
            raise error
        cut = self._cut.popleft() if self._cut else None
        async with self.inner.watch(*args, **options) as events:
            yield self._passed(events, cut) if cut else events

    async def _passed(self, events, cut):
        """Let so many events pass, then break."""
        count, error = cut
        async for event in events:
            if count == 0:
                raise error
            count -= 1
            yield event


async def follow(trouble, *, stream=True, page=500):
    """Run an informer over trouble until its copy is right again; give it back with what it heard."""
    informer = Informer(trouble, CONFIG_MAPS, "default", backoff=QUICK, stream=stream, page=page)
    heard = record(informer)
    for name in ("a", "b", "c"):
        await trouble.inner.create(CONFIG_MAPS, config_map(name), "default")
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await trouble.inner.patch(CONFIG_MAPS, "a", Merge({"data": {"x": "y"}}), "default")
        await trouble.inner.delete(CONFIG_MAPS, "b", "default")
        assert await agrees(trouble.inner, informer, "default")
    return informer, heard


async def test_a_server_without_streamed_lists_is_asked_for_pages():
    trouble = Trouble(watches=[Invalid("sendInitialEvents: Forbidden: not supported")])
    informer, _ = await follow(trouble)
    assert trouble.listed == 1
    assert informer.health.reads == 1
    assert [options["initial"] for options in trouble.watched][:2] == [True, False]


async def test_a_broken_streamed_list_is_restarted():
    trouble = Trouble(cut=[(2, Unavailable("the connection broke"))])
    informer, heard = await follow(trouble)
    assert heard[0][1] == ["a", "b", "c"]
    assert informer.health.reads == 1


async def test_a_list_goes_on_with_the_page_that_failed():
    trouble = Trouble(lists=[None, Unavailable("busy"), Unavailable("busy"), None])
    informer, heard = await follow(trouble, stream=False, page=2)
    assert trouble.listed == 4
    assert heard[0][1] == ["a", "b", "c"]
    assert informer.health.reads == 1


async def test_a_list_whose_token_is_too_old_begins_anew():
    trouble = Trouble(lists=[None, Gone("the provided continue parameter is too old"), None, None])
    _, heard = await follow(trouble, stream=False, page=2)
    assert trouble.listed == 4
    assert heard[0][1] == ["a", "b", "c"]


async def test_a_watch_that_breaks_is_resumed_without_reading_all_again():
    trouble = Trouble(watches=[None, Unavailable("connection reset")], cut=[(4, Unavailable("connection reset"))])
    informer, heard = await follow(trouble)
    assert informer.health.reads == 1
    assert [deltas for deltas, _ in heard[1:]] == [[("a", True, True)], [("b", True, False)]]


async def test_an_expired_version_causes_one_relist_with_differences():
    # Five events pass (three objects, the mark, one change); then the watch breaks and its version is forgotten.
    trouble = Trouble(cut=[(4, Gone("too old resource version"))])
    informer, heard = await follow(trouble)
    assert informer.health.reads == 2
    assert sorted(delta for deltas, _ in heard[1:] for delta in deltas) == [("a", True, True), ("b", True, False)]


async def test_a_throttled_informer_waits_as_long_as_it_is_told():
    trouble = Trouble(
        watches=[Throttled("later", retry_after=0.3), Unavailable("down", retry_after=0.2), Unavailable("down")]
    )
    informer = Informer(trouble, CONFIG_MAPS, backoff=QUICK)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    waits = [after - before for before, after in itertools.pairwise(trouble.asked)]
    assert waits[0] >= 0.3
    assert waits[1] >= 0.2


async def test_trouble_shows_in_the_health_and_goes_away(caplog):
    caplog.set_level(logging.WARNING)
    trouble = Trouble(watches=[Unavailable("no server answers")] * 10_000)
    informer = Informer(trouble, CONFIG_MAPS, backoff=Backoff(least=0.05, most=0.05))
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, informer.health.failures >= 2))
        assert informer.health.error == "no server answers"
        assert not informer.health.synced
        trouble._watches.clear()
        assert await informer.wait_for_sync(PATIENCE)
        assert (informer.health.failures, informer.health.error) == (0, "")
    assert "no server answers" in caplog.text


async def test_a_repeated_error_is_logged_once_per_occurrence(caplog):
    """An older server never has the kind: it is logged once."""
    caplog.set_level(logging.WARNING)
    trouble = Trouble(watches=[*[Unavailable("down")] * 3, Unavailable("busy"), None, *[Unavailable("down")] * 3], cut=[(0, Unavailable("down"))])  # fmt: skip
    informer = Informer(trouble, CONFIG_MAPS, backoff=QUICK)
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, len(trouble.watched) >= 9))
    told = [record.message.partition("; ")[0].rpartition(" ")[2] for record in caplog.records]
    assert told == ["down", "busy", "down"]


async def test_a_broken_set_up_is_not_waited_out():
    trouble = Trouble(watches=[ConfigError("no kubeconfig")])
    with pytest.raises(ConfigError):
        await asyncio.wait_for(Informer(trouble, CONFIG_MAPS).run(), PATIENCE)


async def test_a_listener_that_breaks_ends_the_informer_loudly():
    informer = Informer(Embedded(), CONFIG_MAPS)
    informer.listen(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(informer.run(), PATIENCE)


async def test_a_server_ending_every_watch_is_not_hammered():
    class Short(Trouble):
        @asynccontextmanager
        async def watch(self, *_args, **options):
            self.watched.append(options)

            async def nothing():
                return
                yield

            yield nothing()

    trouble = Short()
    informer = Informer(trouble, CONFIG_MAPS, backoff=Backoff(least=0.02, most=0.02), stream=False)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        begun = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.sleep(0, len(trouble.watched) >= 8))
    assert asyncio.get_running_loop().time() - begun > 0.05, "with a pause between two"


async def test_an_object_that_cannot_be_read_hides_nothing_else():
    cluster = Embedded()
    cluster.load([claim("bad", spec={"devices": {"requests": "none"}}), claim("good")])
    informer = Informer(cluster, RESOURCE_CLAIMS)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert sorted(name for _, name in informer.objects) == ["good"]
        assert "/spec/devices/requests" in informer.unreadable["default", "bad"].problem
        assert informer.health.unreadable == 1
        await cluster.delete(RESOURCE_CLAIMS, "bad", "default")
        await eventually(lambda: asyncio.sleep(0, not informer.unreadable))


async def test_a_storm_of_changes_ends_in_the_right_copy():
    cluster = Embedded(window=50)
    informer = Informer(cluster, CONFIG_MAPS, "default", backoff=QUICK)
    async with running(informer):
        await informer.wait_for_sync(PATIENCE)
        cluster._turned = float("inf")  # no turn but where this says so, however slow the machine
        for number in range(2000):
            name = f"c-{number % 7}"
            if number % 14 < 7:
                await cluster.create(CONFIG_MAPS, config_map(name), "default")
            else:
                await cluster.delete(CONFIG_MAPS, name, "default")
            if number % 200 == 0:
                await asyncio.sleep(0)
        assert await agrees(cluster, informer, "default")
    assert informer.health.reads > 1  # the storm outran the window, so the copy was read anew at least once


async def test_a_misshapen_object_is_an_error_for_each_reader():
    cluster = Embedded.holding([claim("bad", spec={"devices": {"requests": "none"}}), claim("worse", spec=7)])
    with pytest.raises(Unavailable, match="what is stored is not a ResourceClaim"):
        await cluster.get(RESOURCE_CLAIMS, "bad", "default")
    assert (await cluster.get(RESOURCE_CLAIMS.raw, "bad", "default"))["spec"] == {"devices": {"requests": "none"}}


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({"apiVersion": "v9", "kind": "Riddle", "metadata": {"name": "x"}}, "no such resource: v9 Riddle"),
        (claim("bad", metadata={"labels": {"a": 1}}), "ResourceClaim 'bad', metadata: /labels"),
    ],
)
def test_an_object_that_cannot_be_loaded_is_named(obj, text):
    with pytest.raises(BadRequest, match=text):
        Embedded.holding([obj])


async def test_others_get_their_turn_in_a_storm():
    class Storm(Trouble):
        @asynccontextmanager
        async def watch(self, *_args, **_options):
            async def events():
                for version in range(1, 4000):
                    yield Change("ADDED", config_map("a", metadata={"resourceVersion": str(version)}), str(version))
                await asyncio.sleep(30)

            yield events()

    informer = Informer(Storm(), CONFIG_MAPS.raw, stream=False)
    async with running(informer):
        await informer.wait_for_sync(PATIENCE)
        turns = 0
        while not informer.objects or informer.health.events < 3999:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 5


class Mute(Trouble):
    """An embedded cluster whose watches say nothing after so many events, though something happens; and which may list nothing either."""

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
async def test_a_collection_is_listed_whose_watch_says_nothing_though_the_next_ones_say_nothing_either(later):
    mute = Mute(1, *later)  # the mark that ends the streamed list, then silence
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=0.1)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        assert await agrees(mute.inner, informer, "default")
        assert len(mute.watched) <= 2 or later
    assert informer.health.reads >= 2


async def test_a_watch_that_is_not_believed_ends_at_once_and_the_collection_is_listed():
    mute = Mute(1, *[0] * 100)
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=3600)
    informer.distrust_watch()  # there is none yet
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        informer.distrust_watch()
        assert await agrees(mute.inner, informer, "default")


async def test_only_received_data_confirms_a_cache():
    now = itertools.count(1000)
    mute = Mute(1, *[0] * 1000, lists=False)
    informer = Informer(mute, CONFIG_MAPS, "default", backoff=QUICK, silence=0.01, clock=lambda: next(now))
    assert informer.confirmed_at == float("-inf")
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        confirmed = informer.confirmed_at
        assert confirmed >= 1000
        await eventually(lambda: asyncio.sleep(0, mute.refused > 5))
        assert informer.confirmed_at == confirmed
        assert "no answer" in informer.health.error
        mute._after.clear()
        mute.is_listed = True
        await mute.inner.create(CONFIG_MAPS, config_map("a"), "default")
        await eventually(lambda: asyncio.sleep(0, informer.confirmed_at > confirmed))
    assert informer.health.confirmed_at == informer.confirmed_at


async def test_a_cache_of_a_quiet_collection_is_confirmed_repeatedly(cluster, home):
    informer = Informer(cluster, RESOURCE_CLAIMS, home, watch_seconds=3, silence=30)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for _ in range(2):
            before = informer.confirmed_at
            await eventually(lambda before=before: asyncio.sleep(0, informer.confirmed_at > before))
    assert informer.health.reads == 1
    assert informer.health.failures == 0
