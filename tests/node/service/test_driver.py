"""The driver as the kubelet meets it: found by its socket, asked in either version, gone in good order; over an embedded cluster."""

import asyncio
import contextlib
import random
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.exceptions import GRPCError

from cluster import Merge
from cluster.errors import NotFound, Unavailable
from cluster.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from node.guard import Guard
from node.inventory import machine_of, read
from node.messages import (
    ClaimReference,
    Empty,
    HealthReport,
    PluginInfo,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
)
from node.service import Driver, NodePaths
from node.service import driver as drivers
from node.service.disk import Disk
from node.service.grpc import Codec
from node.service.prepared_store import PreparedStore
from node.service.preparing import FORGET_AFTER, Preparing
from node.service.publisher import Publisher
from node.service.sockets import SERVICES, DriverRegistration, GrpcSocket, has_later, successor, sweep
from runtime.http import Address
from runtime.informers import Backoff
from tests.limits import PATIENCE
from tests.node.machines import DRIVER, NODE, described, gpu, result

NIC = {"name": "nic", "interface": "eth1"}
FILES = {"deviceNodes": ["/dev/null", "/dev/no-such-card"]}
DRA = "/k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin/Node{}Resources"
REGISTRATION = "/pluginregistration.Registration/{}"


def machine(**parts):
    inventory, problems = read(described(**(parts or {"gpus": [gpu(0), gpu(1)], "nics": [NIC]})))
    assert problems == []
    return machine_of(inventory)


async def eventually(condition):
    async with asyncio.timeout(PATIENCE):
        while not (value := await condition()):  # noqa: ASYNC110  another process's files and objects have no event
            await asyncio.sleep(0.01)
    return value


class Kubelet:
    """What the kubelet does with a driver."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "plugins_registry").mkdir()
        self.paths = NodePaths(NODE, str(folder), str(folder / "cdi"))

    def sockets(self):
        return sorted((self.folder / "plugins_registry").iterdir())

    def cdi_files(self):
        return sorted(Path(self.paths.cdi).iterdir())

    async def call(self, path, route, request, answer):
        async with Channel(path=str(path), codec=Codec()) as channel:
            return await UnaryUnaryMethod(channel, route, type(request), answer)(request, timeout=PATIENCE)

    async def register(self):
        [socket_] = self.sockets()
        info = await self.call(socket_, REGISTRATION.format("GetInfo"), Empty(), PluginInfo)
        told = RegistrationStatus(registered=True)
        await self.call(socket_, REGISTRATION.format("NotifyRegistrationStatus"), told, Empty)
        return info

    async def prepare(self, endpoint, *references, version="v1"):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA.format(version, "Prepare"), request, PrepareResponse)).claims

    async def unprepare(self, endpoint, *references):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA.format("v1", "Unprepare"), request, UnprepareResponse)).claims


@pytest.fixture
def folder():
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def kubelet(folder):
    return Kubelet(folder)


@contextlib.asynccontextmanager
async def running(cluster, kubelet, made=None, **terms):
    driver = Driver(cluster, made or machine(), kubelet.paths, **terms)
    before = kubelet.sockets()
    stop = asyncio.Event()
    task = asyncio.create_task(driver.run(stop))

    async def listens():
        if task.done():
            await task
        return len(kubelet.sockets()) > len(before)

    await eventually(listens)
    try:
        yield driver
    finally:
        stop.set()
        await task


async def allocated(cluster, name, *results):
    """A claim in the cluster that holds these results."""
    stored = await cluster.create(
        RESOURCE_CLAIMS,
        {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        },
        "ns",
    )
    status = {
        "allocation": {"devices": {"results": list(results)}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod"}],
    }
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), "ns", subresource="status")
    return ClaimReference(namespace="ns", name=name, uid=stored.metadata.uid)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_kubelet_finds_the_driver_and_has_a_claim_prepared_and_unprepared(cluster, kubelet, version):
    async with running(cluster, kubelet) as driver:
        info = await kubelet.register()
        assert (info.type, info.name, info.supported_versions) == ("DRAPlugin", DRIVER, SERVICES)
        assert driver.registration.registered.is_set()
        reference = await allocated(cluster, "a", result("gpu-1"))
        answer = (await kubelet.prepare(info.endpoint, reference, version=version))[reference.uid]
        assert answer.error == ""
        [device] = answer.devices
        assert (device.requests, device.pool, device.device) == (("r",), NODE, "gpu-1")
        assert device.cdi == (f"{DRIVER}/claim={reference.uid}-0",)
        assert len(list((kubelet.folder / "cdi").iterdir())) == 1
        answers = await kubelet.unprepare(info.endpoint, reference)
        assert answers[reference.uid].error == ""
        assert list((kubelet.folder / "cdi").iterdir()) == []
    assert kubelet.sockets() == []
    assert not list((kubelet.folder / "plugins" / DRIVER).glob("*.sock"))


async def test_a_refusal_says_why_and_a_claim_that_is_not_there_is_gone(cluster, kubelet):
    async with running(cluster, kubelet):
        info = await kubelet.register()
        first, second = await allocated(cluster, "a", result("gpu-1")), await allocated(cluster, "b", result("gpu-1"))
        none = ClaimReference(namespace="ns", name="c", uid="u")
        answers = await kubelet.prepare(info.endpoint, first, second, none)
        assert [answers[claim.uid].error for claim in (first, second, none)] == [
            "",
            "ResourceClaim ns/b: Taken: gpu-1 is prepared for ns/a",
            "ResourceClaim ns/c: the claim is gone",
        ]


async def released(cluster, name):
    """What kube-controller-manager does once a claim's pod is gone, by force too: the device is free for others, and a container may have it still."""
    nothing = {"status": {"allocation": None, "reservedFor": None}}
    await cluster.patch(RESOURCE_CLAIMS, name, Merge(nothing), "ns", subresource="status")


@pytest.mark.parametrize("by", ["this driver", "another"])
async def test_a_claim_for_a_force_deleted_pods_device_is_prepared_once_it_is_freed(cluster, kubelet, by):
    """The kubelet's question is held, for it would not ask again before its own round."""
    async with running(cluster, kubelet) as driver:
        info = await kubelet.register()
        first, second = await allocated(cluster, "a", result("gpu-1")), await allocated(cluster, "b", result("gpu-1"))
        await kubelet.prepare(info.endpoint, first)
        await released(cluster, "a")
        waiting = asyncio.create_task(kubelet.prepare(info.endpoint, second))
        async with asyncio.timeout(PATIENCE):
            while not driver._preparing.waiting:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if by == "this driver":
            await kubelet.unprepare(info.endpoint, first)
        else:
            store = PreparedStore(
                machine(), Guard(machine(), NODE), Disk(), kubelet.paths.state(DRIVER), kubelet.paths.cdi
            )
            await asyncio.to_thread(store.forget, [first.uid])
        assert (await waiting)[second.uid].error == ""


async def test_a_device_held_by_an_existing_claim_is_reported_as_taken_at_once(cluster, kubelet):
    async with running(cluster, kubelet) as driver:
        info = await kubelet.register()
        first, second = await allocated(cluster, "a", result("gpu-1")), await allocated(cluster, "b", result("gpu-1"))
        gone, third = await allocated(cluster, "c", result("gpu-0")), await allocated(cluster, "d", result("nic"))
        await kubelet.prepare(info.endpoint, first, gone, third)
        await released(cluster, "c")
        waited = []
        driver._preparing._departure = waited.append
        assert "Taken" in (await kubelet.prepare(info.endpoint, second))[second.uid].error
        assert waited == []


async def test_the_status_of_a_claim_tells_which_interface_it_has(cluster, kubelet):
    async with running(cluster, kubelet):
        info = await kubelet.register()
        reference = await allocated(cluster, "a", result("nic"))
        await kubelet.prepare(info.endpoint, reference)

        async def told():
            return (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).status.devices

        [device] = await eventually(told)
        assert (device.driver, device.pool, device.device) == (DRIVER, NODE, "nic")
        assert device.network_data.interface_name == "eth1"
        assert [(condition.type, condition.status) for condition in device.conditions] == [("Ready", "True")]


async def test_an_invalid_message_gets_an_error_and_the_driver_keeps_serving(cluster, kubelet):
    class Raw(Codec):
        def encode(self, *said):
            del said
            return b"\x0a\xff"

    async with running(cluster, kubelet):
        info = await kubelet.register()
        async with Channel(path=info.endpoint, codec=Raw()) as channel:
            method = UnaryUnaryMethod(channel, DRA.format("v1", "Prepare"), PrepareRequest, PrepareResponse)
            with pytest.raises(GRPCError, match="cut off"):
                await method(PrepareRequest(), timeout=PATIENCE)
        assert await kubelet.prepare(info.endpoint) == {}


async def test_health_says_which_device_lost_its_file(cluster, kubelet):
    made = machine(gpus=[gpu(0), gpu(1, place=FILES)])
    async with running(cluster, kubelet, made):
        info = await kubelet.register()
        async with Channel(path=info.endpoint, codec=Codec()) as channel:
            method = UnaryStreamMethod(channel, "/v1.DRAResourceHealth/NodeWatchResources", Empty, HealthReport)
            async with method.open() as stream:
                await stream.send_message(Empty(), end=True)
                report = await stream.recv_message()
                await stream.cancel()
        fares = {device.device.device: (device.device.pool, device.health, device.message) for device in report.devices}
        assert fares == {"gpu-0": (NODE, 1, ""), "gpu-1": (NODE, 2, "/dev/no-such-card does not exist")}


@pytest.fixture
def card(folder):
    """The file of gpu-1."""
    file = folder / "card"
    file.touch()
    return file


def with_card(card):
    return machine(gpus=[gpu(0), gpu(1, place={"deviceNodes": ["/dev/null", f"{card}:/dev/card"]})])


async def taints(cluster):
    return {
        device.name: [(taint.key, taint.effect) for taint in device.taints]
        for item in await slices(cluster)
        for device in item.spec.devices
    }


FINE = {"gpu-0": [], "gpu-1": []}
FAILED = {"gpu-0": [], "gpu-1": [(f"{DRIVER}/unhealthy", "NoSchedule")]}


async def until_tainted(cluster, expected):
    async with asyncio.timeout(PATIENCE):
        while await taints(cluster) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_device_that_fails_is_tainted_until_it_is_well_and_its_claim_stays(cluster, kubelet, card):
    async with running(cluster, kubelet, with_card(card), look_interval=0.01) as driver:
        info = await kubelet.register()
        await until_tainted(cluster, FINE)
        reference = await allocated(cluster, "a", result("gpu-1"))
        before = await kubelet.prepare(info.endpoint, reference)
        card.unlink()
        await until_tainted(cluster, FAILED)
        assert [(device.device.device, device.health) for device in driver.health().devices] == [
            ("gpu-0", 1),
            ("gpu-1", 2),
        ]
        held = (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).status
        assert [result_.device for result_ in held.allocation.devices.results] == ["gpu-1"]
        assert held.reserved_for
        assert await kubelet.prepare(info.endpoint, reference) == before
        wanted = driver.publisher._wanted
        driver.update_machine(with_card(card))
        assert driver.publisher._wanted == wanted
        card.touch()
        await until_tainted(cluster, FINE)
        [slice_] = await slices(cluster)
        assert slice_.spec.pool.generation == 1
        assert [device.health for device in driver.health().devices] == [1, 1]


async def test_looks_that_find_the_same_and_another_driver_write_nothing(cluster, kubelet, card):
    """Not even a later time of the taint."""
    card.unlink()
    async with running(cluster, kubelet, with_card(card), look_interval=0.01):
        await until_tainted(cluster, FAILED)
        before = await slices(cluster)
    async with running(cluster, kubelet, with_card(card), look_interval=0.01) as driver:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        await asyncio.sleep(0.1)
        assert await slices(cluster) == before
    [slice_] = before
    assert slice_.spec.devices[1].taints[0].time_added


async def test_a_server_without_device_taints_is_told_of_a_failure_once(cluster, kubelet, card, monkeypatch):
    """It drops the field, as with the gate DRADeviceTaints off."""
    patched = []
    honest = cluster.patch

    async def patch(resource, name, change, *more, **named):
        if resource is RESOURCE_SLICES:
            patched.append(change.body)
            for device in change.body["spec"]["devices"]:
                device.pop("taints", None)
        return await honest(resource, name, change, *more, **named)

    monkeypatch.setattr(cluster, "patch", patch)
    async with running(cluster, kubelet, with_card(card), look_interval=0.01) as driver:
        driver.publisher._backoff = Noted()
        await until_tainted(cluster, FINE)
        [before] = await slices(cluster)
        for _ in range(2):
            card.unlink()

            async def is_seen():
                return driver.health().devices[1].health == 2 and patched

            await eventually(is_seen)
            await asyncio.sleep(0.1)
            card.touch()
            await asyncio.sleep(0.1)
        assert len(patched) == 1
        assert [slice_.spec for slice_ in await slices(cluster)] == [before.spec]


async def test_a_running_driver_writes_deleted_files_of_prepared_claims_again(cluster, kubelet):
    async with running(cluster, kubelet, look_interval=0.01):
        info = await kubelet.register()
        reference = await allocated(cluster, "a", result("gpu-0"))
        await kubelet.prepare(info.endpoint, reference)
        folder = Path(kubelet.paths.cdi)
        [file] = kubelet.cdi_files()
        written = file.read_bytes()

        async def is_restored():
            return file.exists() and file.read_bytes() == written

        for delete in (file.unlink, lambda: shutil.rmtree(folder)):
            delete()
            await eventually(is_restored)
        await kubelet.unprepare(info.endpoint, reference)
        await asyncio.sleep(0.1)
        assert kubelet.cdi_files() == []


async def test_a_file_without_permission_is_not_a_failure_and_one_that_fails_is(monkeypatch):
    def stat(path):
        raise {"/dev/null": PermissionError(1, "no"), "/dev/no-such-card": OSError(5, "Input/output error")}[str(path)]

    made = machine(gpus=[gpu(0, place={"deviceNodes": ["/dev/null"]}), gpu(1, place=FILES)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stat)
        failed = drivers._failed_devices(made)
    assert failed == {"gpu-1": "/dev/no-such-card: Input/output error"}


async def test_two_drivers_stand_beside_each_other_in_a_rolling_update(cluster, kubelet):
    async with running(cluster, kubelet):
        old = await kubelet.register()
        reference = await allocated(cluster, "a", result("gpu-1"))
        first = await kubelet.prepare(old.endpoint, reference)
        async with running(cluster, kubelet):
            [new] = [
                socket_
                for socket_ in map(str, (kubelet.folder / "plugins" / DRIVER).glob("dra-*.sock"))
                if socket_ != old.endpoint
            ]
            assert len(kubelet.sockets()) == 2
            assert await kubelet.prepare(new, reference) == first
            other = await allocated(cluster, "b", result("gpu-1"))
            assert "Taken" in (await kubelet.prepare(new, other))[other.uid].error
            await kubelet.unprepare(new, reference)
            assert (await kubelet.prepare(old.endpoint, other))[other.uid].error == ""


async def test_of_two_drivers_the_later_one_publishes_and_when_it_is_gone_the_earlier_one(cluster, kubelet):
    async def names():
        return [device.name for slice_ in await slices(cluster) for device in slice_.spec.devices]

    async def until(*expected):
        async with asyncio.timeout(PATIENCE):
            while await names() != list(expected):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async with running(cluster, kubelet, machine(gpus=[gpu(0)])) as earlier:
        await until("gpu-0")
        async with running(cluster, kubelet, machine(gpus=[gpu(7)])) as later:
            async with asyncio.timeout(PATIENCE):
                while earlier.publisher.leads:  # noqa: ASYNC110  it looks when slices change, and at its own a last time
                    await asyncio.sleep(0.01)
            rounds = []
            honest, earlier.publisher.round = earlier.publisher.round, lambda: rounds.append(1)
            await until("gpu-7")
            for _ in range(3):
                [slice_] = await slices(cluster)
                await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)
                await until("gpu-7")
            assert (rounds, earlier.publisher.leads, later.publisher.leads) == ([], False, True)
            earlier.publisher.round = honest
        await until("gpu-0")
        assert earlier.publisher.leads


async def test_a_later_driver_counts_while_it_answers(folder):
    with (
        socket.socket(socket.AF_UNIX) as dead,
        socket.socket(socket.AF_UNIX) as alive,
        contextlib.ExitStack() as callers,
    ):
        dead.bind(str(folder / "dra-3.sock"))
        alive.bind(str(folder / "dra-2.sock"))
        alive.listen(0)
        # It stands still: these calls are not taken, and after some there is no room for more.
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                caller = callers.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                caller.connect(str(folder / "dra-2.sock"))
        names = [f"dra-{number}.sock" for number in (1, 2, 3, 4)]

        async def successors():
            return [await asyncio.to_thread(successor, str(folder / name), 0.1) for name in names[:3]]

        assert await successors() == ["", "", ""]
        assert [has_later(str(folder / name)) for name in names[:3]] == [True, False, False]
        async with GrpcSocket(DriverRegistration(DRIVER, "x"), str(folder / names[3])):
            answers = [await asyncio.to_thread(successor, str(folder / name), PATIENCE) for name in names[2:]]
            assert answers == ["dra-4.sock", ""]


async def test_a_later_driver_that_stands_still_has_the_word_no_more_and_has_it_again_when_it_goes_on(cluster, kubelet):
    later = Path(kubelet.paths.state(DRIVER), "dra-ffffffffffff.sock")
    later.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as still:
        still.bind(str(later))
        still.listen()
        async with running(cluster, kubelet, patience=1.0) as earlier:
            async with asyncio.timeout(PATIENCE):
                await earlier.publisher.published.wait()
            async with GrpcSocket(DriverRegistration(DRIVER, "x"), str(later)):

                async def stands_aside():
                    for slice_ in await slices(cluster):
                        with contextlib.suppress(NotFound):
                            await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)
                    return not earlier.publisher.leads

                await eventually(stands_aside)


def test_sockets_of_killed_drivers_go_and_those_that_answer_stay(folder):
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        dead.bind(str(folder / "dra-1.sock"))
        alive.bind(str(folder / "dra-2.sock"))
        alive.listen()
        sweep(str(folder), "dra-")
        assert [path.name for path in folder.iterdir()] == ["dra-2.sock"]


async def test_a_closing_socket_does_not_remove_the_socket_of_its_successor(folder):
    path = str(folder / "kubelet.sock")
    handler = DriverRegistration(DRIVER, "x")
    async with GrpcSocket(handler, path):
        pass
    assert not (folder / "kubelet.sock").exists()
    old, new = GrpcSocket(handler, path), GrpcSocket(handler, path)
    await old.__aenter__()
    async with new:
        await old.__aexit__()
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(path)


async def test_a_path_that_no_socket_can_have_is_said(cluster, tmp_path):
    with pytest.raises(OSError, match="longer than 106 bytes"):
        Driver(cluster, machine(), NodePaths(NODE, f"{tmp_path}/{'x' * 100}", str(tmp_path)))


# Metrics and probes


async def asked(where, path):
    """What the port answers: the status, and the body's lines."""
    reader, writer = await asyncio.open_connection(where.host, where.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.splitlines()


async def test_it_is_ready_when_the_kubelet_knows_it_and_its_devices_are_published_and_counts_what_it_does(
    cluster, kubelet
):
    async with running(cluster, kubelet) as driver, driver.metrics.shown(Address()) as where:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        status, lines = await asked(where, "/readyz")
        assert (status, lines[0].partition(":")[0]) == (503, "[-]kubelet")
        assert "has not found this driver yet" in lines[0]
        info = await kubelet.register()
        assert await asked(where, "/readyz") == (
            200, ["[+]kubelet ok", "[+]slices ok", "[+]checkpoint ok", "[+]serving ok"],
        )  # fmt: skip
        first, second = await allocated(cluster, "a", result("gpu-1")), await allocated(cluster, "b", result("gpu-1"))
        await kubelet.prepare(info.endpoint, first, second)
        _, counted = await asked(where, "/metrics")
        assert {
            'drawbridge_driver_claims_total{call="prepare",outcome="done"} 1.0',
            'drawbridge_driver_claims_total{call="prepare",outcome="refused"} 1.0',
            'drawbridge_driver_call_seconds_count{call="prepare"} 1.0',
            'drawbridge_driver_publications_total{outcome="written"} 1.0',
            "drawbridge_driver_prepared_claims 1.0",
            "drawbridge_driver_devices 3.0",
            "drawbridge_driver_publishes 1.0",
        } <= set(counted)
        await kubelet.unprepare(info.endpoint, first)
        _, counted = await asked(where, "/metrics")
        assert "drawbridge_driver_prepared_claims 0.0" in counted


async def test_a_kubelet_that_refuses_us_and_a_successor_are_told(cluster, kubelet):
    async with running(cluster, kubelet) as driver:
        [socket_] = kubelet.sockets()
        told = RegistrationStatus(registered=False, error="no such version")
        await kubelet.call(socket_, REGISTRATION.format("NotifyRegistrationStatus"), told, Empty)
        assert driver.metrics.readiness()[0]["kubelet"] == "the kubelet rejected the registration: no such version"
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        driver.publisher.leads = False
        assert driver.metrics.readiness()[1]["slices"] == "a later driver of this node publishes"


async def test_an_api_server_that_refuses_slices_is_told(cluster, kubelet):
    async def refuse(*asked, **named):
        raise Unavailable("out of order")

    cluster.create = refuse
    async with running(cluster, kubelet) as driver:

        async def told():
            return driver.publisher.problem

        await eventually(told)
        assert driver.metrics.readiness()[0]["slices"] == "nothing is published yet: out of order"


# Publishing


async def slices(cluster):
    return (await cluster.list(RESOURCE_SLICES)).items


async def test_the_machine_is_published_and_stays_so(cluster, kubelet):
    async with running(cluster, kubelet) as driver:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        [slice_] = await slices(cluster)
        assert [device.name for device in slice_.spec.devices] == ["gpu-0", "gpu-1", "nic"]
        assert [(owner.kind, owner.name) for owner in slice_.metadata.owner_references] == [("Node", NODE)]
        await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)

        async def back():
            return [other for other in await slices(cluster) if other.metadata.uid != slice_.metadata.uid]

        assert len(await eventually(back)) == 1


@pytest.mark.parametrize("name", ["n" * 253, ".".join(["n" * 49] * 5)])
async def test_a_node_with_the_longest_name_publishes(cluster, name):
    await cluster.create(NODES, {"metadata": {"name": name}})
    assert await Publisher(cluster, machine(), name).round()
    [slice_] = await slices(cluster)
    assert slice_.spec.pool.name == name


async def test_a_second_publisher_of_the_same_writes_nothing(cluster):
    assert await Publisher(cluster, machine(), NODE).round()
    before = await slices(cluster)
    assert not await Publisher(cluster, machine(), NODE).round()
    assert await slices(cluster) == before


async def test_a_changed_machine_is_published_in_the_existing_slice(cluster):
    await Publisher(cluster, machine(), NODE).round()
    await Publisher(cluster, machine(gpus=[gpu(7)]), NODE).round()
    [slice_] = await slices(cluster)
    assert ([device.name for device in slice_.spec.devices], slice_.spec.pool.generation) == (["gpu-7"], 1)


class Noted(Backoff, frozen=True):
    """Waits for nothing, and notes for what it was asked."""

    asked: list[int] = []

    def seconds(self, failures, fraction, error=None):
        del fraction, error
        self.asked.append(failures)
        return 0.0


async def test_slices_that_change_again_and_again_are_written_slower_and_slower(cluster):
    noted = Noted(asked=[])
    publisher = Publisher(cluster, machine(), NODE, noted)
    once = publisher.round

    async def change_meanwhile():
        wrote = await once()
        if wrote and len(noted.asked) < 5:
            publisher.update_machine(machine(gpus=[gpu(len(noted.asked))]))
        return wrote

    publisher.round = change_meanwhile
    running = asyncio.create_task(publisher.run())

    async def asked():
        return len(noted.asked) >= 6

    await eventually(asked)
    running.cancel()
    assert noted.asked == [1, 2, 3, 4, 5, 6]


# A world without an API server, and claims that are gone


class Away:
    """An API server that cannot be reached."""

    async def get(self, *asked):
        del asked
        raise Unavailable("connection refused")


def preparing(cluster, kubelet, clock):
    (kubelet.folder / "cdi").mkdir(exist_ok=True)
    made = machine()
    store = PreparedStore(made, Guard(made, NODE), Disk(), str(kubelet.folder), str(kubelet.folder / "cdi"))
    return Preparing(cluster, made, store, clock=clock), store


async def test_while_the_api_server_is_away_running_pods_are_answered_and_no_new_ones(cluster, kubelet):
    here, _ = preparing(cluster, kubelet, lambda: 0.0)
    old, new = await allocated(cluster, "a", result("gpu-0")), await allocated(cluster, "b", result("gpu-1"))
    first = await here.prepare(PrepareRequest(claims=(old,)))
    await here.wait_for_statuses()
    away, _ = preparing(Away(), kubelet, lambda: 0.0)
    answers = (await away.prepare(PrepareRequest(claims=(old, new)))).claims
    assert answers[old.uid] == first.claims[old.uid]
    assert "the API server cannot be asked about it: connection refused" in answers[new.uid].error
    await away.unprepare(PrepareRequest(claims=(old,)))
    await away.unprepare_deleted()


async def test_a_claim_that_has_been_gone_for_long_is_forgotten_and_not_before(cluster, kubelet):
    now = [0.0]
    preparer, store = preparing(cluster, kubelet, lambda: now[0])
    a, b = await allocated(cluster, "a", result("gpu-0")), await allocated(cluster, "b", result("gpu-1"))
    await preparer.prepare(PrepareRequest(claims=(a, b)))
    await preparer.wait_for_statuses()
    await cluster.delete(RESOURCE_CLAIMS, "a", "ns")
    for seconds in (0.0, FORGET_AFTER - 1):
        now[0] = seconds
        await preparer.unprepare_deleted()
        assert set(store.claims()) == {a.uid, b.uid}
    now[0] = FORGET_AFTER
    await preparer.unprepare_deleted()
    assert set(store.claims()) == {b.uid}


async def given(cluster, name, *results):
    """Give a claim that is there these devices, or none."""
    user = {"resource": "pods", "name": "p", "uid": "pod"}
    status = {"allocation": None, "reservedFor": None, "devices": None}
    if results:
        status = {"allocation": {"devices": {"results": list(results)}}, "reservedFor": [user]}
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), "ns", subresource="status")


@pytest.mark.parametrize("seed", range(10))
async def test_a_claim_that_is_given_devices_again_while_we_look_for_what_is_gone_stays_prepared(
    cluster, kubelet, seed
):
    """A claim outlives its pod, and the next pod starts when the first one has been gone for long enough."""
    chance = random.Random(seed)

    class Crowded:
        """A cluster in which others are asked between any two answers."""

        patch = cluster.patch

        async def get(self, *asked):
            stored = await cluster.get(*asked)
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            return stored

    now = [0.0]
    preparer, store = preparing(Crowded(), kubelet, lambda: now[0])
    reference = await allocated(cluster, "a", result("gpu-0"))
    request = PrepareRequest(claims=(reference,))
    await preparer.prepare(request)
    await given(cluster, "a")
    await preparer.unprepare_deleted()
    now[0] = FORGET_AFTER

    async def come_back():
        for _ in range(chance.randrange(40)):
            await asyncio.sleep(0)
        await given(cluster, "a", result("gpu-0"))
        return (await preparer.prepare(request)).claims[reference.uid].error

    problem, _ = await asyncio.gather(come_back(), preparer.unprepare_deleted())
    assert (problem, set(store.claims())) == ("", {reference.uid})
    await given(cluster, "a")
    now[0] += 1
    await preparer.unprepare_deleted()
    assert set(store.claims()) == {reference.uid}, "it has been gone for a moment only"
    now[0] += FORGET_AFTER
    await preparer.unprepare_deleted()
    assert not store.claims()
    await preparer.wait_for_statuses()


class Silent(Away):
    """An API server that says nothing."""

    async def get(self, *asked):
        del asked
        raise TimeoutError


async def test_an_api_server_that_says_nothing_is_named_in_the_answer(cluster, kubelet):
    preparer, _ = preparing(Silent(), kubelet, lambda: 0.0)
    reference = await allocated(cluster, "a", result("gpu-0"))
    answers = (await preparer.prepare(PrepareRequest(claims=(reference,)))).claims
    assert answers[reference.uid].error.endswith("cannot be asked about it: no answer in time")


async def test_a_claim_deleted_during_its_preparation_is_eventually_forgotten(cluster, kubelet):
    """Its pod was deleted by force. The kubelet asks to unprepare it, or never does."""

    class Late:
        """A cluster in which a claim is gone as soon as it has been read."""

        patch = cluster.patch

        async def get(self, *asked):
            stored = await cluster.get(*asked)
            await cluster.delete(RESOURCE_CLAIMS, stored.metadata.name, "ns")
            return stored

    now = [0.0]
    late, store = preparing(Late(), kubelet, lambda: now[0])
    for name in ("asked", "forgotten"):
        reference = await allocated(cluster, name, result("gpu-0"))
        assert (await late.prepare(PrepareRequest(claims=(reference,)))).claims[reference.uid].error == ""
        await late.wait_for_statuses()
        if name == "asked":
            await late.unprepare(PrepareRequest(claims=(reference,)))
            assert store.claims() == {}
    here, store = preparing(cluster, kubelet, lambda: now[0])
    for seconds, held in ((0.0, {reference.uid}), (FORGET_AFTER, set())):
        now[0] = seconds
        await here.unprepare_deleted()
        assert set(store.claims()) == held
    assert list((kubelet.folder / "cdi").iterdir()) == []


async def test_a_cluster_that_cannot_be_asked_makes_no_claim_gone(cluster, kubelet):
    here, _ = preparing(cluster, kubelet, lambda: 0.0)
    reference = await allocated(cluster, "a", result("gpu-0"))
    await here.prepare(PrepareRequest(claims=(reference,)))
    await here.wait_for_statuses()
    now = [0.0]
    away, store = preparing(Away(), kubelet, lambda: now[0])
    for seconds in (0.0, 10 * FORGET_AFTER):
        now[0] = seconds
        await away.unprepare_deleted()
    assert set(store.claims()) == {reference.uid}
