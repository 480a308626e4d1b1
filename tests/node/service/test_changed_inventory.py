"""A driver whose machine changes while claims hold devices: held hardware is not offered, and devices that appear are published."""

from msgspec.structs import replace

from cluster import Merge
from cluster.resources import RESOURCE_CLAIMS
from tests.node.machines import gpu, result
from tests.node.service.running_driver import (
    create_claim,
    eventually,
    list_slices,
    machine,
    reallocate,
    running_driver,
)
from tests.waiting import until


async def published(cluster):
    return [device.name for slice_ in await list_slices(cluster) for device in slice_.spec.devices]


async def wait_until_published(cluster, *names):
    async def is_published():
        return await published(cluster) == list(names)

    await until(is_published)


async def test_held_hardware_is_published_under_its_new_name_when_it_is_free(cluster, kubelet):
    async with running_driver(cluster, kubelet, machine(gpus=[gpu(0), gpu(1)])):
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("gpu-0"))
        before = await kubelet.prepare(info.endpoint, reference)
    [file] = kubelet.cdi_files()
    written = file.read_bytes()
    renamed = machine(gpus=[gpu(0, name="x"), gpu(1, name="y")])
    async with running_driver(cluster, kubelet, renamed, health_interval=0.01) as driver:
        info = await kubelet.register()
        await wait_until_published(cluster, "y")
        note = driver.metrics.readiness()[1]["withheld"]
        assert note.startswith("x has hardware that is prepared for ns/a as gpu-0")
        assert await kubelet.prepare(info.endpoint, reference) == before
        assert file.read_bytes() == written
        second = await create_claim(cluster, "b", result("x"))
        error = (await kubelet.prepare(info.endpoint, second))[second.uid].error
        assert "Taken: x has hardware that is prepared for ns/a as gpu-0" in error
        await kubelet.unprepare(info.endpoint, reference)
        await wait_until_published(cluster, "x", "y")
        assert (await kubelet.prepare(info.endpoint, second))[second.uid].error == ""
        assert driver.metrics.readiness()[1]["withheld"] == ""


async def test_a_device_that_appears_is_published_and_its_pod_starts(cluster, kubelet):
    """After a reboot, /run is empty and the kernel module of the card is not loaded yet."""
    async with running_driver(cluster, kubelet, machine(gpus=[gpu(0)])):
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("gpu-0"))
        before = await kubelet.prepare(info.endpoint, reference)
    [file] = kubelet.cdi_files()
    written = file.read_bytes()
    file.unlink()
    found = [machine(gpus=[])]
    options = {"discover": lambda: found[0], "discovery_interval": 0.01, "health_interval": 0.01}
    async with running_driver(cluster, kubelet, found[0], **options):
        info = await kubelet.register()
        await wait_until_published(cluster)
        error = (await kubelet.prepare(info.endpoint, reference))[reference.uid].error
        assert "the machine does not offer gpu-0 now" in error
        assert not file.exists()
        found[0] = machine(gpus=[gpu(0), gpu(1)])
        await wait_until_published(cluster, "gpu-0", "gpu-1")

        async def is_restored():
            return file.exists() and file.read_bytes() == written

        await eventually(is_restored)
        assert await kubelet.prepare(info.endpoint, reference) == before


async def test_only_the_latest_driver_takes_over_what_it_discovers(cluster, kubelet):
    found, calls = [machine(gpus=[gpu(0)])], []

    def discover():
        calls.append(1)
        return found[0]

    async with running_driver(cluster, kubelet, found[0], discover=discover, discovery_interval=0.01) as earlier:
        async with running_driver(cluster, kubelet, machine(gpus=[gpu(5)])):
            found[0] = machine(gpus=[gpu(1)])
            seen = len(calls)
            await until(lambda: len(calls) > seen + 2)
            assert [device.name for device in earlier._machine.devices] == ["gpu-0"]
        await wait_until_published(cluster, "gpu-1")


async def test_a_failed_discovery_keeps_the_last_devices(cluster, kubelet, caplog):
    """A discovery that fails, and a discovery whose devices the API server would reject, are each logged once and counted."""
    before = machine(gpus=[gpu(0)])
    found = [OSError("sysfs is not mounted")]

    def discover():
        if isinstance(found[0], OSError):
            raise found[0]
        return found[0]

    async with running_driver(cluster, kubelet, before, discover=discover, discovery_interval=0.01) as driver:

        async def until_noted(problem):
            def failures():
                return driver.metrics.registry.get_sample_value("drawbridge_driver_failed_discoveries_total")

            await until(lambda: problem in driver.metrics.readiness()[1]["discovery"])
            seen = failures()
            await until(lambda: failures() > seen + 2)
            assert caplog.text.count("cannot be discovered") == len(set(problems))
            assert await published(cluster) == ["gpu-0"]

        problems = ["sysfs is not mounted"]
        await until_noted(problems[0])
        found[0] = replace(before, devices=before.devices * 2)
        problems.append("gpu-0 is used 2 times")
        await until_noted(problems[1])
        found[0] = machine(gpus=[gpu(0), gpu(1)])
        await wait_until_published(cluster, "gpu-0", "gpu-1")
        assert driver.metrics.readiness()[1]["discovery"] == ""


async def test_the_status_of_a_claim_names_the_interface_that_the_claim_was_given(cluster, kubelet):
    """The kubelet prepares the claim again after the inventory has changed."""
    nic = {"name": "nic", "interface": "eth1"}
    async with running_driver(cluster, kubelet, machine(nics=[nic])):
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("nic"))
        await kubelet.prepare(info.endpoint, reference)
    await cluster.patch(RESOURCE_CLAIMS, "a", Merge({"status": {"devices": None}}), "ns", subresource="status")
    async with running_driver(cluster, kubelet, machine(nics=[nic | {"name": "x"}])):
        info = await kubelet.register()
        await kubelet.prepare(info.endpoint, reference)

        async def device_statuses():
            return (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).status.devices

        [device] = await eventually(device_statuses)
        assert device.network_data.interface_name == "eth1"


async def test_a_claim_allocated_again_is_not_ready_while_the_node_has_its_former_device(cluster, kubelet):
    """The kubelet prepares a claim once: after a forced deletion and a new allocation, it does not call the driver."""
    async with running_driver(cluster, kubelet, machine(gpus=[gpu(0), gpu(1)])) as driver:
        info = await kubelet.register()
        reference = await create_claim(cluster, "a", result("gpu-0"))
        await kubelet.prepare(info.endpoint, reference)
        await driver._preparing.wait_for_statuses()
        await reallocate(cluster, "a", result("gpu-1"))
        error = (await kubelet.prepare(info.endpoint, reference))[reference.uid].error
        assert "Changed: the claim is prepared with gpu-0, but its status now has gpu-1: delete the pods" in error

        async def conditions():
            await driver._preparing.unprepare_deleted()
            claim = await cluster.get(RESOURCE_CLAIMS, "a", "ns")
            return [(device.device, condition) for device in claim.status.devices for condition in device.conditions]

        [(device, condition)] = await conditions()
        assert (device, condition.status, condition.reason) == ("gpu-1", "False", "PreparedOtherwise")
        assert "is prepared with gpu-0" in condition.message
        version = (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).metadata.resource_version
        await conditions()
        assert (await cluster.get(RESOURCE_CLAIMS, "a", "ns")).metadata.resource_version == version
        await kubelet.unprepare(info.endpoint, reference)
        assert (await kubelet.prepare(info.endpoint, reference))[reference.uid].error == ""
        await driver._preparing.wait_for_statuses()
        [(device, condition)] = await conditions()
        assert (device, condition.status) == ("gpu-1", "True")
