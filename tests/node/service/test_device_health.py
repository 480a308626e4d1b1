"""The health of the driver's devices: a missing file taints the device, and a restored file removes the taint."""

import asyncio
from pathlib import Path

import pytest
from grpclib.client import Channel, UnaryStreamMethod

from cluster.patch import Operations
from cluster.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from node.messages import Empty, HealthReport
from node.service import driver as drivers
from node.service.grpc import Codec
from tests.limits import PATIENCE
from tests.node.machines import DRIVER, NODE, gpu, result
from tests.node.service.running_driver import (
    DEVICE_FILES,
    RecordedBackoff,
    create_claim,
    eventually,
    list_slices,
    machine,
    running_driver,
)
from tests.waiting import until


async def test_health_names_the_device_whose_file_is_missing(cluster, kubelet):
    machine_without_file = machine(gpus=[gpu(0), gpu(1, place=DEVICE_FILES)])
    async with running_driver(cluster, kubelet, machine_without_file):
        info = await kubelet.register()
        async with Channel(path=info.endpoint, codec=Codec()) as channel:
            method = UnaryStreamMethod(channel, "/v1.DRAResourceHealth/NodeWatchResources", Empty, HealthReport)
            async with method.open() as stream:
                await stream.send_message(Empty(), end=True)
                report = await stream.recv_message()
                await stream.cancel()
        reported = {
            device.device.device: (device.device.pool, device.health, device.message) for device in report.devices
        }
        assert reported == {"gpu-0": (NODE, 1, ""), "gpu-1": (NODE, 2, "/dev/no-such-card does not exist")}


@pytest.fixture
def card(folder):
    """Create the device file of gpu-1."""
    file = folder / "card"
    file.touch()
    return file


def machine_with_card(card):
    return machine(gpus=[gpu(0), gpu(1, place={"deviceNodes": ["/dev/null", f"{card}:/dev/card"]})])


async def taints(cluster):
    return {
        device.name: [(taint.key, taint.effect) for taint in device.taints]
        for item in await list_slices(cluster)
        for device in item.spec.devices
    }


NO_TAINTS = {"gpu-0": [], "gpu-1": []}
TAINT_OF_GPU_1 = {"gpu-0": [], "gpu-1": [(f"{DRIVER}/unhealthy", "NoSchedule")]}


async def wait_for_taints(cluster, expected):
    async def are_as_expected():
        return await taints(cluster) == expected

    await until(are_as_expected)


async def test_a_failed_device_is_tainted_until_it_recovers(cluster, kubelet, card):
    """The claim on the device stays prepared."""
    async with running_driver(cluster, kubelet, machine_with_card(card), health_interval=0.01) as driver:
        info = await kubelet.register()
        await wait_for_taints(cluster, NO_TAINTS)
        reference = await create_claim(cluster, "a", result("gpu-1"))
        before = await kubelet.prepare(info.endpoint, reference)
        card.unlink()
        await wait_for_taints(cluster, TAINT_OF_GPU_1)
        assert [(device.device.device, device.health) for device in driver.health().devices] == [
            ("gpu-0", 1),
            ("gpu-1", 2),
        ]
        status = (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).status
        assert [allocation_result.device for allocation_result in status.allocation.devices.results] == ["gpu-1"]
        assert status.reserved_for
        assert await kubelet.prepare(info.endpoint, reference) == before
        published_machine = driver.publisher._wanted
        driver.update_machine(machine_with_card(card))
        assert driver.publisher._wanted == published_machine
        card.touch()
        await wait_for_taints(cluster, NO_TAINTS)
        [slice_] = await list_slices(cluster)
        assert slice_.spec.pool.generation == 1
        assert [device.health for device in driver.health().devices] == [1, 1]


async def test_unchanged_health_and_a_restarted_driver_write_nothing(cluster, kubelet, card):
    """The taint keeps the time at which the server stored it."""
    card.unlink()
    async with running_driver(cluster, kubelet, machine_with_card(card), health_interval=0.01):
        await wait_for_taints(cluster, TAINT_OF_GPU_1)
        [slice_] = await list_slices(cluster)
    time_of_server = {"op": "add", "path": "/spec/devices/1/taints/0/timeAdded", "value": "2026-01-01T00:00:00Z"}
    await cluster.patch(RESOURCE_SLICES, slice_.metadata.name, Operations((time_of_server,)))
    before = await list_slices(cluster)
    async with running_driver(cluster, kubelet, machine_with_card(card), health_interval=0.01) as driver:
        async with asyncio.timeout(PATIENCE):
            await driver.publisher.published.wait()
        await asyncio.sleep(0.1)
        assert await list_slices(cluster) == before


async def test_a_taint_that_the_server_drops_is_written_only_once(cluster, kubelet, card, monkeypatch):
    """The server drops taints while the feature gate DRADeviceTaints is off."""
    patches = []
    stored_patch = cluster.patch

    async def patch(resource, name, change, *arguments, **options):
        if resource is RESOURCE_SLICES:
            patches.append(change.body)
            for device in change.body["spec"]["devices"]:
                device.pop("taints", None)
        return await stored_patch(resource, name, change, *arguments, **options)

    monkeypatch.setattr(cluster, "patch", patch)
    async with running_driver(cluster, kubelet, machine_with_card(card), health_interval=0.01) as driver:
        driver.publisher._backoff = RecordedBackoff()
        await wait_for_taints(cluster, NO_TAINTS)
        [before] = await list_slices(cluster)
        for _ in range(2):
            card.unlink()

            async def is_patched():
                return driver.health().devices[1].health == 2 and patches

            await eventually(is_patched)
            await asyncio.sleep(0.1)
            card.touch()
            await asyncio.sleep(0.1)
        assert len(patches) == 1
        assert [slice_.spec for slice_ in await list_slices(cluster)] == [before.spec]


async def test_an_unreadable_file_fails_a_device_unless_permission_is_missing(monkeypatch):
    def stat(path):
        raise {"/dev/null": PermissionError(1, "no"), "/dev/no-such-card": OSError(5, "Input/output error")}[str(path)]

    machine_with_files = machine(gpus=[gpu(0, place={"deviceNodes": ["/dev/null"]}), gpu(1, place=DEVICE_FILES)])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stat)
        failed = drivers._failed_devices(machine_with_files)
    assert failed == {"gpu-1": "/dev/no-such-card: Input/output error"}
