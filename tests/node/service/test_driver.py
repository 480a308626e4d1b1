"""The driver over an embedded cluster: the kubelet registers it, prepares and unprepares claims in both versions, and gets errors."""

import asyncio
import shutil
from pathlib import Path

import pytest
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError

from cluster.resources import RESOURCE_CLAIMS
from node.guard import Guard
from node.messages import ClaimReference, PrepareRequest, PrepareResponse
from node.service.disk import Disk
from node.service.grpc import Codec
from node.service.prepared_store import PreparedStore
from node.service.sockets import SERVICES
from tests.limits import PATIENCE
from tests.node.machines import DRIVER, NODE, result
from tests.node.service.fake_kubelet import DRA_ROUTE
from tests.node.service.running_driver import create_claim, eventually, machine, running_driver, set_allocation
from tests.waiting import until


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_the_kubelet_registers_the_driver_and_prepares_a_claim(cluster, kubelet, version):
    async with running_driver(cluster, kubelet) as driver:
        info = await kubelet.register()
        assert (info.type, info.name, info.supported_versions) == ("DRAPlugin", DRIVER, SERVICES)
        assert driver.registration.registered.is_set()
        reference = await create_claim(cluster, "a", result("gpu-1"))
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


async def test_taken_devices_and_missing_claims_have_different_errors(cluster, kubelet):
    async with running_driver(cluster, kubelet):
        info = await kubelet.register()
        first, second = [await create_claim(cluster, name, result("gpu-1")) for name in "ab"]
        missing = ClaimReference(namespace="ns", name="c", uid="u")
        answers = await kubelet.prepare(info.endpoint, first, second, missing)
        assert [answers[claim.uid].error for claim in (first, second, missing)] == [
            "",
            "ResourceClaim ns/b: Taken: gpu-1 is prepared for ns/a",
            "ResourceClaim ns/c: the claim is gone",
        ]


@pytest.mark.parametrize("unpreparer", ["this driver", "another driver"])
async def test_a_force_deleted_pods_device_is_prepared_when_free(cluster, kubelet, unpreparer):
    """The driver delays its answer until the device is free, because the kubelet retries only in its next sync."""
    async with running_driver(cluster, kubelet) as driver:
        info = await kubelet.register()
        first, second = [await create_claim(cluster, name, result("gpu-1")) for name in "ab"]
        await kubelet.prepare(info.endpoint, first)
        # As kube-controller-manager does after a forced deletion of the claim's pod, whose container may still run.
        await set_allocation(cluster, "a")
        waiting = asyncio.create_task(kubelet.prepare(info.endpoint, second))
        await until(lambda: driver._preparing.waiting)
        if unpreparer == "this driver":
            await kubelet.unprepare(info.endpoint, first)
        else:
            guard, paths = Guard(machine(), NODE), kubelet.paths
            store = PreparedStore(guard, Disk(), paths.state(DRIVER), paths.cdi, pods=paths.pods)
            await asyncio.to_thread(store.forget, [first.uid])
        assert (await waiting)[second.uid].error == ""


async def test_a_device_of_an_existing_claim_is_refused_at_once(cluster, kubelet):
    async with running_driver(cluster, kubelet) as driver:
        info = await kubelet.register()
        first, second = [await create_claim(cluster, name, result("gpu-1")) for name in "ab"]
        deallocated = await create_claim(cluster, "c", result("gpu-0"))
        third = await create_claim(cluster, "d", result("nic"))
        await kubelet.prepare(info.endpoint, first, deallocated, third)
        await set_allocation(cluster, "c")
        waits = []

        class RecordingEvent(asyncio.Event):
            async def wait(self):
                waits.append(self)
                return await super().wait()

        driver._preparing._unprepared = RecordingEvent()
        assert "Taken" in (await kubelet.prepare(info.endpoint, second))[second.uid].error
        assert waits == []


async def test_the_status_of_a_claim_names_its_network_interface(cluster, kubelet):
    async with running_driver(cluster, kubelet):
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("nic"))
        await kubelet.prepare(info.endpoint, reference)

        async def device_statuses():
            return (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).status.devices

        [device] = await eventually(device_statuses)
        assert (device.driver, device.pool, device.device) == (DRIVER, NODE, "nic")
        assert device.network_data.interface_name == "eth1"
        assert [(condition.type, condition.status) for condition in device.conditions] == [("Ready", "True")]


async def test_an_invalid_message_does_not_stop_the_driver(cluster, kubelet):
    class InvalidCodec(Codec):
        def encode(self, *message):
            del message
            return b"\x0a\xff"

    async with running_driver(cluster, kubelet):
        info = await kubelet.register()
        async with Channel(path=info.endpoint, codec=InvalidCodec()) as channel:
            method = UnaryUnaryMethod(channel, DRA_ROUTE.format("v1", "Prepare"), PrepareRequest, PrepareResponse)
            with pytest.raises(GRPCError, match="cut off"):
                await method(PrepareRequest(), timeout=PATIENCE)
        assert await kubelet.prepare(info.endpoint) == {}


async def test_a_running_driver_writes_deleted_files_of_prepared_claims_again(cluster, kubelet):
    async with running_driver(cluster, kubelet, health_interval=0.01):
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("gpu-0"))
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
