"""Informers: on an embedded and a real cluster, and on an embedded cluster that fails as real ones do."""

import asyncio
import itertools
import logging
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import BadRequest, ConfigError, Gone, Invalid, Throttled, Unavailable
from cluster.informers.backoff import Backoff
from cluster.informers.informer import Informer
from cluster.protocol import Change
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from tests.cluster.conftest import eventually
from tests.cluster.informers.running import QUICK_BACKOFF, FailingCluster, has_caught_up, running
from tests.cluster.objects import claim, config_map
from tests.limits import PATIENCE


def record_batches(informer):
    """Return a list that records each batch: its deltas as (name, has an old object, has a new object), and all names in the cache."""
    batches = []

    def listener(batch):
        deltas = [(delta.key[1], delta.old is not None, delta.new is not None) for delta in batch.deltas]
        batches.append((deltas, sorted(name for _, name in informer.objects)))

    informer.listen(listener)
    return batches


@pytest.mark.parametrize("stream", [True, False], ids=["streamed list", "list in pages"])
async def test_a_cache_starts_complete_and_follows_changes(cluster, namespace, stream):
    for name in ("a", "b", "c"):
        await cluster.create(RESOURCE_CLAIMS, claim(name), namespace)
    informer = Informer(cluster, replace(RESOURCE_CLAIMS, page=2), namespace, stream=stream)
    batches = record_batches(informer)
    assert not informer.is_synced
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        assert batches == [([("a", False, True), ("b", False, True), ("c", False, True)], ["a", "b", "c"])]
        await cluster.patch(RESOURCE_CLAIMS, "a", Merge({"metadata": {"labels": {"x": "y"}}}), namespace)
        await cluster.delete(RESOURCE_CLAIMS, "b", namespace)
        await cluster.create(RESOURCE_CLAIMS, claim("d"), namespace)
        assert await has_caught_up(cluster, informer, namespace)
    assert batches[1:] == [
        ([("a", True, True)], ["a", "b", "c"]),
        ([("b", True, False)], ["a", "c"]),
        ([("d", False, True)], ["a", "c", "d"]),
    ]


class WatchCounter:
    """A cluster that counts the watches it has opened."""

    def __init__(self, inner):
        self._inner = inner
        self.watches = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def watch(self, *args, **options):
        self.watches += 1
        return self._inner.watch(*args, **options)


async def test_a_watch_that_ends_is_resumed_at_its_version(cluster, namespace):
    counting_cluster = WatchCounter(cluster)
    informer = Informer(counting_cluster, RESOURCE_CLAIMS, namespace, watch_seconds=0.1)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        for number in range(4):
            watches_before = counting_cluster.watches
            await eventually(
                lambda watches_before=watches_before: asyncio.sleep(0, counting_cluster.watches > watches_before)
            )
            await cluster.create(RESOURCE_CLAIMS, claim(f"c-{number}"), namespace)
        assert await has_caught_up(cluster, informer, namespace)
    assert informer.full_list_count == 1


async def test_a_wait_for_sync_that_times_out_returns_false():
    assert not await Informer(Embedded(), CONFIG_MAPS).wait_for_sync(0.01)


async def run_informer(failing_cluster, *, stream=True, page=500):
    """Run an informer on a failing cluster until its cache is correct again; return the informer and the recorded batches."""
    informer = Informer(
        failing_cluster, replace(CONFIG_MAPS, page=page), "default", backoff=QUICK_BACKOFF, stream=stream
    )
    batches = record_batches(informer)
    for name in ("a", "b", "c"):
        await failing_cluster.inner.create(CONFIG_MAPS, config_map(name), "default")
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        await failing_cluster.inner.patch(CONFIG_MAPS, "a", Merge({"data": {"x": "y"}}), "default")
        await failing_cluster.inner.delete(CONFIG_MAPS, "b", "default")
        assert await has_caught_up(failing_cluster.inner, informer, "default")
    return informer, batches


async def test_a_server_without_streamed_lists_is_listed_in_pages():
    failing_cluster = FailingCluster(watches=[Invalid("sendInitialEvents: Forbidden: not supported")])
    informer, _ = await run_informer(failing_cluster)
    assert failing_cluster.list_count == 1
    assert informer.full_list_count == 1
    assert [options["initial"] for options in failing_cluster.watch_options][:2] == [True, False]


async def test_a_broken_streamed_list_is_restarted():
    failing_cluster = FailingCluster(breaks=[(2, Unavailable("the connection broke"))])
    informer, batches = await run_informer(failing_cluster)
    assert batches[0][1] == ["a", "b", "c"]
    assert informer.full_list_count == 1


async def test_a_list_continues_with_the_page_that_failed():
    failing_cluster = FailingCluster(lists=[None, Unavailable("busy"), Unavailable("busy"), None])
    informer, batches = await run_informer(failing_cluster, stream=False, page=2)
    assert failing_cluster.list_count == 4
    assert batches[0][1] == ["a", "b", "c"]
    assert informer.full_list_count == 1


async def test_a_list_with_an_expired_continue_token_begins_again():
    failing_cluster = FailingCluster(lists=[None, Gone("the provided continue parameter is too old"), None, None])
    _, batches = await run_informer(failing_cluster, stream=False, page=2)
    assert failing_cluster.list_count == 4
    assert batches[0][1] == ["a", "b", "c"]


async def test_a_watch_that_breaks_is_resumed_without_another_list():
    failing_cluster = FailingCluster(
        watches=[None, Unavailable("connection reset")], breaks=[(4, Unavailable("connection reset"))]
    )
    informer, batches = await run_informer(failing_cluster)
    assert informer.full_list_count == 1
    assert [deltas for deltas, _ in batches[1:]] == [[("a", True, True)], [("b", True, False)]]


async def test_an_expired_version_causes_one_relist_with_differences():
    # Four events pass: three objects, and the bookmark that ends the list. Then the watch fails, and the API server no longer has the version
    # at which it could be resumed.
    failing_cluster = FailingCluster(breaks=[(4, Gone("too old resource version"))])
    informer, batches = await run_informer(failing_cluster)
    assert informer.full_list_count == 2
    assert sorted(delta for deltas, _ in batches[1:] for delta in deltas) == [("a", True, True), ("b", True, False)]


async def test_a_throttled_informer_waits_for_the_retry_delay():
    failing_cluster = FailingCluster(
        watches=[Throttled("later", retry_after=0.3), Unavailable("down", retry_after=0.2), Unavailable("down")]
    )
    informer = Informer(failing_cluster, CONFIG_MAPS, backoff=QUICK_BACKOFF)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
    waits = [
        later_time - earlier_time for earlier_time, later_time in itertools.pairwise(failing_cluster.request_times)
    ]
    assert waits[0] >= 0.3
    assert waits[1] >= 0.2


async def test_an_informer_reports_its_last_error_until_it_recovers(caplog):
    caplog.set_level(logging.WARNING)
    failing_cluster = FailingCluster(watches=[Unavailable("no server answers")] * 10_000)
    informer = Informer(failing_cluster, CONFIG_MAPS, backoff=Backoff(least=0.05, most=0.05))
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, informer.error == "no server answers"))
        assert not informer.is_synced
        failing_cluster._watches.clear()
        assert await informer.wait_for_sync(PATIENCE)
        assert informer.error == ""
    assert "no server answers" in caplog.text


async def test_consecutive_equal_errors_are_logged_once(caplog):
    """A server that lacks a kind always returns the same error, so only the first of equal errors is logged until another outcome."""
    caplog.set_level(logging.WARNING)
    failing_cluster = FailingCluster(watches=[*[Unavailable("down")] * 3, Unavailable("busy"), None, *[Unavailable("down")] * 3], breaks=[(0, Unavailable("down"))])  # fmt: skip
    informer = Informer(failing_cluster, CONFIG_MAPS, backoff=QUICK_BACKOFF)
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, len(failing_cluster.watch_options) >= 9))
    logged_errors = [record.message.partition("; ")[0].rpartition(" ")[2] for record in caplog.records]
    assert logged_errors == ["down", "busy", "down"]


async def test_a_broken_configuration_is_not_retried():
    failing_cluster = FailingCluster(watches=[ConfigError("no kubeconfig")])
    with pytest.raises(ConfigError):
        await asyncio.wait_for(Informer(failing_cluster, CONFIG_MAPS).run(), PATIENCE)


async def test_a_listener_failing_on_an_empty_batch_ends_the_informer():
    informer = Informer(Embedded(), CONFIG_MAPS)
    informer.listen(lambda _: 1 / 0)  # the cluster is empty, so the batch has no object that could be quarantined
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(informer.run(), PATIENCE)


async def test_watches_that_end_at_once_are_reopened_after_pauses():
    class EndsEveryWatch(FailingCluster):
        @asynccontextmanager
        async def watch(self, *_args, **options):
            self.watch_options.append(options)

            async def no_events():
                return
                yield

            yield no_events()

    failing_cluster = EndsEveryWatch()
    informer = Informer(failing_cluster, CONFIG_MAPS, backoff=Backoff(least=0.02, most=0.02), stream=False)
    async with running(informer):
        assert await informer.wait_for_sync(PATIENCE)
        begun_at = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.sleep(0, len(failing_cluster.watch_options) >= 8))
    assert asyncio.get_running_loop().time() - begun_at > 0.05, "the informer reopened the watch without pauses"


class SickCluster(FailingCluster):
    """Answers every list, and refuses every watch and every page but the first of a list with 410 Gone."""

    async def list(self, *args, more="", **options):
        self.request_times.append(asyncio.get_running_loop().time())
        if more:
            raise Gone("the provided continue parameter is too old")
        return await super().list(*args, more=more, **options)

    @asynccontextmanager
    async def watch(self, *_args, **_options):
        if False:
            yield
        raise Gone("too old resource version")


@pytest.mark.parametrize("page", [1, 500], ids=["pages expire", "watches expire"])
async def test_lists_after_410_gone_have_growing_pauses(page):
    sick_cluster = SickCluster()
    for name in "ab":
        await sick_cluster.inner.create(CONFIG_MAPS, config_map(name), "default")
    resource = replace(CONFIG_MAPS, page=page)
    informer = Informer(sick_cluster, resource, backoff=Backoff(least=0.04, most=0.64), stream=False)
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, len(sick_cluster.request_times) >= 12))
    times = sick_cluster.request_times
    # Pauses of at least 0.02, 0.04, 0.08, 0.16 and 0.32 s, with one or two requests between them.
    assert times[11] - times[0] > 0.6


async def test_a_watch_that_stays_open_ends_a_series_of_failures(monkeypatch):
    monkeypatch.setattr("cluster.informers.informer.STABLE_WATCH", 0.1)
    failing_cluster = FailingCluster(watches=[None, *[Unavailable("down")] * 3])
    informer = Informer(failing_cluster, CONFIG_MAPS, backoff=QUICK_BACKOFF, watch_seconds=0.3)
    async with running(informer):
        await eventually(lambda: asyncio.sleep(0, informer._state.failures >= 3))
        await eventually(lambda: asyncio.sleep(0, informer._state.failures == 0))


async def test_a_burst_of_changes_ends_in_an_equal_cache():
    cluster = Embedded(window=50)
    informer = Informer(cluster, CONFIG_MAPS, "default", backoff=QUICK_BACKOFF)
    async with running(informer):
        await informer.wait_for_sync(PATIENCE)
        cluster._turned = float("inf")  # the cluster never yields by itself, even on a slow machine
        for number in range(2000):
            name = f"c-{number % 7}"
            if number % 14 < 7:
                await cluster.create(CONFIG_MAPS, config_map(name), "default")
            else:
                await cluster.delete(CONFIG_MAPS, name, "default")
            if number % 200 == 0:
                await asyncio.sleep(0)
        assert await has_caught_up(cluster, informer, "default")
    assert informer.full_list_count > 1  # more changes than the window holds, so the informer listed again


async def test_only_a_typed_read_of_a_misshapen_object_fails():
    cluster = Embedded.holding([claim("bad", spec={"devices": {"requests": "none"}}), claim("worse", spec=7)])
    with pytest.raises(Unavailable, match="the stored object is not a ResourceClaim"):
        await cluster.get(RESOURCE_CLAIMS, "bad", "default")
    assert (await cluster.get(RESOURCE_CLAIMS.raw, "bad", "default"))["spec"] == {"devices": {"requests": "none"}}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"apiVersion": "v9", "kind": "Riddle", "metadata": {"name": "x"}}, "no such resource: v9 Riddle"),
        (claim("bad", metadata={"labels": {"a": 1}}), "ResourceClaim 'bad', metadata: /labels"),
    ],
)
def test_an_object_that_cannot_be_loaded_is_named(obj, message):
    with pytest.raises(BadRequest, match=message):
        Embedded.holding([obj])


async def test_other_tasks_run_during_a_burst_of_changes():
    class FloodingCluster(FailingCluster):
        @asynccontextmanager
        async def watch(self, *_args, **_options):
            async def events():
                for version in range(1, 4000):
                    yield Change("ADDED", config_map("a", metadata={"resourceVersion": str(version)}), str(version))
                await asyncio.sleep(30)

            yield events()

    informer = Informer(FloodingCluster(), CONFIG_MAPS.raw, stream=False)
    async with running(informer):
        await informer.wait_for_sync(PATIENCE)
        turns = 0
        while not informer.objects or informer.events < 3999:
            turns += 1
            await asyncio.sleep(0)
    assert turns > 5
