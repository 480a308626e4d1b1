import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from cluster.embedded.embedded import Embedded
from cluster.errors import Forbidden, NotFound
from cluster.informers import Batch, Delta
from cluster.informers.quarantine import REMEMBERED
from cluster.resources import DEVICE_CLASSES, LIMIT_RANGES, NAMESPACES, PODS, RESOURCE_QUOTAS
from tests.limits import PATIENCE
from tests.objects import device_class, pod
from tests.waiting import until
from tests.webhook.pods import configured
from tests.webhook.state.test_builder import claim_holding
from webhook.service.decider import ReviewDecider
from webhook.service.follower import NAMED, Follower
from webhook.service.pace import Pace
from webhook.state.builder import StateBuilder
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.mode import Mode, PodOwner, mode_of


@asynccontextmanager
async def following(cluster, pace=Pace(), builder=None, *, synced=True, **settings):  # noqa: B008  a Pace is immutable
    follower = Follower(cluster, builder or StateBuilder(Configuration()), pace, **settings)
    task = asyncio.create_task(follower.run())
    try:
        if synced:
            async with asyncio.timeout(PATIENCE):
                await follower.wait_for_sync()
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Failing(Embedded):
    """A cluster in which watches of one kind fail."""

    def __init__(self, plural, error):
        super().__init__()
        self._failure = plural, error

    def watch(self, resource, *args, **kwargs):
        if resource.plural == self._failure[0]:
            raise self._failure[1]
        return super().watch(resource, *args, **kwargs)


async def test_a_relisted_collection_changes_the_stock_once():
    """After an outage of the API server, thousands of claims may be new. Adding them one by one would delay all reviews for seconds."""
    cluster = Embedded()

    async with following(cluster) as follower:
        earlier_stock = follower.state().stock
        deltas = [Delta(("ns", f"c-{n}"), None, claim_holding(f"c-{n}")) for n in range(100)]
        follower._apply_batch(Batch(tuple(deltas), "9", complete=True))
        later_stock = follower.state().stock
        assert len(later_stock.claims) == 100
        assert later_stock.history.length == earlier_stock.history.length + 1
        deleted, created = (
            Delta(("ns", "c-7"), claim_holding("c-7"), None),
            Delta(("ns", "n"), None, claim_holding("n")),
        )
        follower._apply_batch(Batch((deleted, created), "10"))
        assert {"ns/n"} == follower.state().stock.claims.keys() - later_stock.claims.keys()
        assert {"ns/c-7"} == later_stock.claims.keys() - follower.state().stock.claims.keys()


async def test_a_kind_missing_on_the_server_does_not_block_readiness():
    async with following(
        Failing("devicetaintrules", NotFound("the server could not find the requested resource")), Pace(extra=0.05)
    ) as follower:
        assert follower.what_is_unread() == ""
        assert follower.fresh()


async def test_a_follower_not_interested_in_device_holders_watches_no_claims_and_quotas():
    class RecordingWatches(Embedded):
        def __init__(self):
            super().__init__()
            self.watched = set()

        def watch(self, resource, *args, **kwargs):
            self.watched.add(resource.plural)
            return super().watch(resource, *args, **kwargs)

    async def watched_kinds(**settings):
        async with following(cluster := RecordingWatches(), **settings):
            return cluster.watched

    all_kinds, without_holders = await watched_kinds(), await watched_kinds(holders=False)
    assert all_kinds - without_holders == {"resourceclaims", "devicequotas"}
    assert without_holders < all_kinds


MIXED = {"nvidia.com/gpu": {"prefer": "plugin"}}


def gpu_pod(name, node, phase="Running"):
    amounts = {"nvidia.com/gpu": "2"}
    return pod(name, namespace="ns", limits=amounts, requests=amounts, phase=phase, nodeName=node)


async def test_device_usage_is_counted_only_when_a_policy_needs_it():
    cluster = Embedded.holding([gpu_pod("one", "a"), gpu_pod("two", "a"), gpu_pod("ended", "a", "Succeeded")])
    builder = StateBuilder(Configuration())

    async with following(cluster, Pace(refresh=0.01), builder) as follower:
        assert follower.state().uses is None
        assert follower.uncounted() == "", "the follower reports a missing count that no policy needs"
        builder.configure(configured(mixed=MIXED))
        assert "could not be counted" in follower.uncounted(), "the count is reported as known before pods were read"
        await until(lambda: follower.state().uses is not None)
        first_count = follower.state().uses
        assert first_count == {"a": {"nvidia.com/gpu": 4 * 10**9}}
        assert follower.uncounted() == ""
        await cluster.delete(PODS, "one", "ns")
        await until(lambda: follower.state().uses != first_count)
        assert follower.state().uses == {"a": {"nvidia.com/gpu": 2 * 10**9}}
        assert first_count == {"a": {"nvidia.com/gpu": 4 * 10**9}}, "a count that was handed out has changed"


async def test_a_missing_right_to_watch_pods_is_only_reported():
    async with following(
        Failing("pods", Forbidden("pods is forbidden: User cannot watch")),
        Pace(refresh=0.01),
        StateBuilder(configured(mixed=MIXED)),
        synced=False,
    ) as follower:
        await until(lambda: "forbidden" in follower.uncounted())
        assert follower.what_is_unread() == ""
        assert follower.fresh()
        assert follower.state().uses is None


async def test_a_missing_right_to_watch_quotas_is_reported_as_unread():
    async with following(
        Failing("resourcequotas", Forbidden("resourcequotas is forbidden: User cannot watch")), synced=False
    ) as follower:
        await until(lambda: "forbidden" in follower.what_is_unread())
        assert "resourcequotas" in follower.what_is_unread()
        assert not follower.fresh()


async def test_a_kind_with_an_unreadable_object_is_incomplete():
    cluster = Embedded.holding([device_class("odd", selectors="none")])

    async with following(cluster) as follower:
        decider = ReviewDecider(follower._builder, follower)
        assert decider.state().unseen == ("DeviceClass",)
        assert decider.state() is decider.state()  # an unchanged state is the same object
        assert follower.stale().endswith("objects of these kinds are set aside: DeviceClass")
        for number in range(2 * REMEMBERED):  # the kind stays listed, however many other objects are set aside
            follower.quarantine.hold(("pods", "default", str(number)), "bad")
        assert decider.state().unseen == ("DeviceClass",)
        await cluster.delete(DEVICE_CLASSES, "odd")
        await until(lambda: not decider.state().incomplete)
        assert follower.stale() == ""


@pytest.mark.parametrize(
    ("resource", "unreadable"),
    [
        (NAMESPACES, {"metadata": {"name": "ns"}, "status": "odd"}),
        (RESOURCE_QUOTAS, {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": "much"}}),
        (LIMIT_RANGES, {"metadata": {"name": "l", "namespace": "ns"}, "spec": {"limits": "few"}}),
    ],
    ids=["Namespace", "ResourceQuota", "LimitRange"],
)
async def test_an_unreadable_object_puts_its_namespace_in_warn_mode(resource, unreadable):
    cluster = Embedded.holding([{"apiVersion": "v1", "kind": resource.kind, **unreadable}])
    builder = StateBuilder(Configuration(msgspec.structs.replace(DEFAULT, mode="enforce")))

    async with following(cluster, builder=builder) as follower:
        decider = ReviewDecider(builder, follower)

        def mode(namespace):
            return mode_of(decider.state(), PodOwner(namespace, "Pod", "p"))

        assert (mode("ns"), mode("other")) == (Mode.WARN, Mode.ENFORCE)
        assert decider.state() is decider.state()
        assert follower.unsure_namespaces().endswith(f"could not be read: ns ({resource.kind} could not be read)")
        await cluster.delete(resource, unreadable["metadata"]["name"], unreadable["metadata"].get("namespace"))
        await until(lambda: mode("ns") is Mode.ENFORCE)
        assert follower.unsure_namespaces() == ""


async def test_some_unreadable_namespaces_are_named_and_others_counted():
    quotas = [
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": f"ns-{n:02}"}, "spec": []}
        for n in range(NAMED + 3)
    ]

    async with following(Embedded.holding(quotas)) as follower:
        assert "ns-04 (ResourceQuota could not be read) and 3 more" in follower.unsure_namespaces()
        assert "ns-05" not in follower.unsure_namespaces()


@pytest.mark.parametrize("broken", [True, False])
async def test_state_age_grows_only_while_the_api_server_is_away(broken):
    class Leaving(Embedded):
        away = False
        watches = 0

        def watch(self, *args, **kwargs):
            self.watches += 1
            if self.away:
                raise NotFound("gone")
            return super().watch(*args, **kwargs | {"timeout": 0.05})

    cluster = Leaving()

    async with following(cluster) as follower:
        cluster.away = broken
        if broken:
            while follower.age() < 0.6:  # noqa: ASYNC110  time has to pass
                await asyncio.sleep(0.05)
        else:
            started = asyncio.get_running_loop().time()
            expected_watches = cluster.watches + 30  # the watches of several collections end and are opened again
            while cluster.watches < expected_watches:  # noqa: ASYNC110  time has to pass
                await asyncio.sleep(0.01)
            assert follower.age() < asyncio.get_running_loop().time() - started


class Silent(Embedded):
    """A cluster that does not report its feature gates."""

    async def server(self, *, probe=True):
        return msgspec.structs.replace(await super().server(probe=probe), gates={})


async def test_readiness_names_the_assumed_feature_gates():
    async with following(Silent(), synced=False) as follower:
        assert follower.assumed_gates() == ""  # the follower has not asked the server yet
        await follower.wait_for_sync()
        assert "DRAConsumableCapacity (on by default)" in follower.assumed_gates()

    async with following(Embedded()) as follower:
        assert follower.assumed_gates() == ""
