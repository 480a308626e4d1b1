"""What the allocator knows of its API server: feature gates that are reported, declared or guessed, also during an upgrade.

The stock is the allocator's copy of all devices and claims, read as a server with these gates reads them.
"""

import contextlib
import threading

import msgspec

from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.resources import POD_GROUPS, RESOURCE_CLAIMS
from dra.server import DeclaredServer
from dra.stock import Stock
from tests.allocator.service.sidecar import claim, fleet, loaded, pod, running, until
from tests.limits import PATIENCE

SHARES_GATE, PARTITIONS_GATE = "DRAConsumableCapacity", "DRAPartitionableDevices"


class ServerWithGates(Embedded):
    """A cluster whose version and feature gates a test sets."""

    minor = 36
    gates = {SHARES_GATE: True}

    async def server(self, *, probe=True):
        reported = await super().server(probe=probe)
        return msgspec.structs.replace(reported, minor=self.minor, gates=self.gates)


def cluster_with_gates(*objects):
    return loaded(*fleet(1, 2), *objects, cluster=ServerWithGates())


async def test_the_stock_follows_the_servers_gates_and_guesses_are_reported():
    async with running(cluster_with_gates()) as sidecar:
        sidecar.service.knowledge.declare(DeclaredServer(gates={PARTITIONS_GATE: False, SHARES_GATE: False}))
        await until(lambda: not sidecar.service.knowledge.stock.reading.enabled(PARTITIONS_GATE))
        assert sidecar.service.knowledge.stock.reading.enabled(SHARES_GATE)  # as the server reports
        status, answer = await sidecar.ask("/api/v1/server")
        assert (status, answer["kubernetes"], answer["reported"]) == (200, "1.36", {SHARES_GATE: True})
        assert answer["declared"] == {PARTITIONS_GATE: False}
        assert answer["guessed"]["DRADeviceTaints"] is True
        assert f"{SHARES_GATE}=false: it is true" in answer["doubts"]
        _, notes = sidecar.service.metrics.readiness()
        assert notes["server"] == answer["doubts"]


class ServerWithOlderRole(Embedded):
    """A cluster whose role for the allocator has no right to read PodGroups until `allowed` is set."""

    allowed = False

    def require(self, resource):
        if resource.kind == POD_GROUPS.kind and not self.allowed:
            raise Forbidden("cannot list resource podgroups")

    async def list(self, resource, *args, **options):
        self.require(resource)
        return await super().list(resource, *args, **options)

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        self.require(resource)
        async with super().watch(resource, *args, **options) as events:
            yield events


async def test_without_the_right_to_read_groups_pods_are_placed(caplog):
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"), cluster=ServerWithOlderRole())
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        problems, notes = sidecar.service.metrics.readiness()
        assert not any(problems.values())
        assert "podgroups" in notes["rights"]
        assert "manifests/bridge/rbac.yaml" in notes["rights"]
        assert caplog.text.count("a resource cannot be read") == 1
        cluster.allowed = True
        await until(lambda: sidecar.service.metrics.readiness()[1]["rights"] == "")


async def test_the_age_of_the_stock_is_exported():
    async with running(cluster_with_gates()) as sidecar:
        age = sidecar.service.metrics.registry.get_sample_value("drawbridge_allocator_stock_age_seconds")
        assert 0 < age <= sidecar.service.knowledge.age() < PATIENCE


async def test_calls_are_answered_while_the_stock_follows_a_server_upgrade(monkeypatch):
    cluster = cluster_with_gates(claim("a"), pod("p", "a"), claim("b"))
    reading_has_begun, may_continue = threading.Event(), threading.Event()
    read = Stock.as_read_by

    def read_slowly(stock, server):
        new_stock = read(stock, server)
        reading_has_begun.set()
        assert may_continue.wait(PATIENCE)
        return new_stock

    async with running(cluster) as sidecar:
        knowledge = sidecar.service.knowledge
        assert knowledge.stock.reading.server.minor == 36
        monkeypatch.setattr(Stock, "as_read_by", read_slowly)
        cluster.minor, cluster.gates = 37, {SHARES_GATE: False}
        await knowledge.learn_server()
        await until(reading_has_begun.is_set)
        try:
            assert (await sidecar.place("p"))[0] == 200
            await cluster.delete(RESOURCE_CLAIMS, "b", "default")
            await until(lambda: "default/b" not in knowledge.stock.claims)
            assert knowledge.stock.reading.server.minor == 36
        finally:
            may_continue.set()
        await until(lambda: knowledge.stock.reading.server.minor == 37)
        assert not knowledge.stock.reading.enabled(SHARES_GATE)
        assert knowledge.stock.claims.keys() == {"default/a"}
        assert knowledge.stock.claims["default/a"].status.allocation is not None
