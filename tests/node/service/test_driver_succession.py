"""Several drivers of one node, as in a rolling update: which driver publishes, and which sockets stay."""

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from cluster.errors import NotFound
from cluster.resources import RESOURCE_SLICES
from node.service import Driver, NodePaths
from node.service.sockets import DriverRegistration, GrpcSocket, has_later, successor, sweep
from tests.limits import PATIENCE
from tests.node.machines import DRIVER, NODE, gpu, result
from tests.node.service.running_driver import create_claim, eventually, list_slices, machine, running_driver
from tests.waiting import until


async def test_two_drivers_serve_during_a_rolling_update(cluster, kubelet):
    async with running_driver(cluster, kubelet):
        old = await kubelet.register()
        first_reference = await create_claim(cluster, "a", result("gpu-1"))
        first = await kubelet.prepare(old.endpoint, first_reference)
        async with running_driver(cluster, kubelet):
            [new] = [
                socket_path
                for socket_path in map(str, (kubelet.folder / "plugins" / DRIVER).glob("dra-*.sock"))
                if socket_path != old.endpoint
            ]
            assert len(kubelet.sockets()) == 2
            assert await kubelet.prepare(new, first_reference) == first
            second_reference = await create_claim(cluster, "b", result("gpu-1"))
            assert "Taken" in (await kubelet.prepare(new, second_reference))[second_reference.uid].error
            await kubelet.unprepare(new, first_reference)
            assert (await kubelet.prepare(old.endpoint, second_reference))[second_reference.uid].error == ""


async def test_the_newest_driver_publishes_until_it_stops(cluster, kubelet):
    async def until_published(name):
        async def is_published():
            return [device.name for slice_ in await list_slices(cluster) for device in slice_.spec.devices] == [name]

        await until(is_published)

    async with running_driver(cluster, kubelet, machine(gpus=[gpu(0)])) as earlier:
        await until_published("gpu-0")
        async with running_driver(cluster, kubelet, machine(gpus=[gpu(7)])) as later:
            await until(lambda: not earlier.publisher.leads)
            rounds = []
            publish, earlier.publisher.round = earlier.publisher.round, lambda: rounds.append(1)
            await until_published("gpu-7")
            for _ in range(3):
                [slice_] = await list_slices(cluster)
                await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)
                await until_published("gpu-7")
            assert (rounds, earlier.publisher.leads, later.publisher.leads) == ([], False, True)
            earlier.publisher.round = publish
        await until_published("gpu-0")
        assert earlier.publisher.leads


async def test_a_newer_driver_counts_as_successor_while_it_answers(folder):
    with (
        socket.socket(socket.AF_UNIX) as dead,
        socket.socket(socket.AF_UNIX) as hanging,
        contextlib.ExitStack() as callers,
    ):
        dead.bind(str(folder / "dra-3.sock"))
        hanging.bind(str(folder / "dra-2.sock"))
        hanging.listen(0)
        # dra-2.sock hangs: nothing accepts these connections, and they fill its backlog.
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


async def test_a_newer_driver_that_hangs_does_not_publish(cluster, kubelet):
    """The earlier driver publishes until the newer driver answers."""
    later_socket = Path(kubelet.paths.state(DRIVER), "dra-ffffffffffff.sock")
    later_socket.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent_driver:
        silent_driver.bind(str(later_socket))
        silent_driver.listen()
        async with running_driver(cluster, kubelet, patience=1.0) as earlier:
            async with asyncio.timeout(PATIENCE):
                await earlier.publisher.published.wait()
            async with GrpcSocket(DriverRegistration(DRIVER, "x"), str(later_socket)):

                async def earlier_has_stopped():
                    for slice_ in await list_slices(cluster):
                        with contextlib.suppress(NotFound):
                            await cluster.delete(RESOURCE_SLICES, slice_.metadata.name)
                    return not earlier.publisher.leads

                await eventually(earlier_has_stopped)


def test_only_sockets_of_killed_drivers_are_removed(folder):
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as alive:
        dead.bind(str(folder / "dra-1.sock"))
        alive.bind(str(folder / "dra-2.sock"))
        alive.listen()
        sweep(str(folder), "dra-")
        assert [path.name for path in folder.iterdir()] == ["dra-2.sock"]


async def test_a_closing_socket_keeps_the_socket_of_its_successor(folder):
    path = str(folder / "kubelet.sock")
    handler = DriverRegistration(DRIVER, "x")
    async with GrpcSocket(handler, path):
        pass
    assert not (folder / "kubelet.sock").exists()
    old, new = GrpcSocket(handler, path), GrpcSocket(handler, path)
    await old.__aenter__()
    async with new:
        await old.__aexit__()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


async def test_a_too_long_socket_path_is_an_error(cluster, tmp_path):
    with pytest.raises(OSError, match="longer than 106 bytes"):
        Driver(cluster, machine(), NodePaths(NODE, f"{tmp_path}/{'x' * 100}", str(tmp_path)))
