"""Device plugins behind a DRA driver: their devices are published and prepared, and saved for a restart."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import pytest

from cluster.resources import RESOURCE_SLICES
from node.messages import AllocateResponse, CdiName, Edits, PluginDevice, PrepareRequest
from node.plugins import Facts, FactSources
from node.service import Adapter, NodePaths
from node.service.disk import Disk
from tests.limits import PATIENCE
from tests.node.machines import NODE, result
from tests.node.service import running_driver
from tests.node.service.device_plugin import DevicePlugin
from tests.waiting import until

DRIVER = "plugins.drawbridge.dev"
RESOURCE = "example.com/thing"


@asynccontextmanager
async def running_adapter(cluster, folder):
    """Run an adapter with its files in `folder`, and with the PCIe root of device a."""
    for name in ("sockets", "kubelet/plugins_registry", "kubelet/pods"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    paths = NodePaths(NODE, str(folder / "kubelet"), str(folder / "cdi"))
    facts = FactSources({"a": Facts(pcie_root="pci0000:17")})
    adapter = Adapter(cluster, DRIVER, folder / "sockets", facts, paths)
    stop = asyncio.Event()
    task = asyncio.create_task(adapter.run(stop))
    await until(lambda: (folder / "sockets/kubelet.sock").exists() or task.done())
    try:
        yield adapter
    finally:
        stop.set()
        await task


def device_plugin(folder, *ids):
    return DevicePlugin(folder / "sockets", RESOURCE, *ids)


@asynccontextmanager
async def adapter_and_plugin(cluster, folder, *ids):
    """Run an adapter, and a plugin whose devices the adapter has published."""
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, *ids) as plugin:
        await plugin.register()
        await wait_until_published(cluster, {id_: [] for id_ in ids})
        yield adapter, plugin


async def wait_until_published(cluster, expected):
    """Wait until the cluster has exactly these devices, by id, with these taints."""
    async with asyncio.timeout(PATIENCE):
        while (current := await taints_by_id(cluster)) != expected:  # noqa: ASYNC110  slices of another task have no event
            await asyncio.sleep(0.01)
    return current


async def taints_by_id(cluster):
    page = await cluster.list(RESOURCE_SLICES)
    return {
        device.attributes["id"].string: [taint.key for taint in device.taints]
        for item in page.items
        for device in item.spec.devices
    }


async def create_claim(cluster, name, id_):
    return await running_driver.create_claim(cluster, name, result(device_name(id_)) | {"driver": DRIVER})


async def prepare(adapter, reference):
    answer = await adapter.driver._preparing.prepare(PrepareRequest(claims=(reference,)))
    return answer.claims[reference.uid]


def device_name(id_):
    return f"example-com-thing-{id_}"


async def test_the_devices_of_a_plugin_are_published_prepared_and_unprepared(cluster, folder):
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, "a", "b") as plugin:
        await wait_until_published(cluster, {})
        await plugin.register()
        await wait_until_published(cluster, {"a": [], "b": []})
        page = await cluster.list(RESOURCE_SLICES)
        [device] = [device for device in page.items[0].spec.devices if device.name == device_name("a")]
        assert device.attributes["resource.kubernetes.io/pcieRoot"].string == "pci0000:17"
        plugin.make_answer = lambda _: AllocateResponse(
            containers=(Edits(variables={"THINGS": "a"}, cdi=(CdiName(name="vendor.com/x=1"),)),)
        )
        reference = await create_claim(cluster, "one", "a")
        answer = await prepare(adapter, reference)
        assert answer.error == ""
        assert answer.devices[0].cdi == (f"{DRIVER}/claim={reference.uid}-0", "vendor.com/x=1")
        [file] = (folder / "cdi").iterdir()
        assert json.loads(file.read_text())["devices"][0]["containerEdits"]["env"] == ["THINGS=a"]
        assert await prepare(adapter, reference) == answer
        assert plugin.calls == [("allocate", (("a",),))], "the plugin was called again for a prepared claim"
        await adapter.driver._preparing.unprepare(PrepareRequest(claims=(reference,)))
        assert list((folder / "cdi").iterdir()) == []


async def test_a_taken_device_causes_no_call_of_the_plugin(cluster, folder):
    async with adapter_and_plugin(cluster, folder, "a") as (adapter, plugin):
        assert (await prepare(adapter, await create_claim(cluster, "one", "a"))).error == ""
        answer = await prepare(adapter, await create_claim(cluster, "two", "a"))
        assert "Taken" in answer.error
        assert len(plugin.calls) == 1


async def test_an_invalid_answer_is_reported_and_the_call_repeated(cluster, folder):
    async with adapter_and_plugin(cluster, folder, "a") as (adapter, plugin):
        right_answer, plugin.make_answer = plugin.make_answer, lambda _: AllocateResponse()
        reference = await create_claim(cluster, "one", "a")
        assert "answered 0 requests instead of 1" in (await prepare(adapter, reference)).error
        assert list((folder / "cdi").iterdir()) == []
        plugin.make_answer = right_answer
        assert (await prepare(adapter, reference)).error == ""


async def test_a_restarted_adapter_keeps_devices_and_prepared_claims(cluster, folder):
    async with adapter_and_plugin(cluster, folder, "a", "b") as (adapter, plugin):
        reference = await create_claim(cluster, "one", "a")
        answer = await prepare(adapter, reference)
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, "a", "b") as plugin:
        taint = f"{DRIVER}/disconnected"
        await wait_until_published(cluster, {"a": [taint], "b": [taint]})
        assert await prepare(adapter, reference) == answer
        assert plugin.calls == []
        second_reference = await create_claim(cluster, "two", "b")
        assert "not connected" in (await prepare(adapter, second_reference)).error
        await plugin.register()
        await wait_until_published(cluster, {"a": [], "b": []})
        assert (await prepare(adapter, second_reference)).error == ""


async def test_lost_and_truncated_files_are_written_again(cluster, folder):
    async with adapter_and_plugin(cluster, folder, "a") as (adapter, plugin):
        reference = await create_claim(cluster, "one", "a")
        answer = await prepare(adapter, reference)
        for damage in ("lost", "truncated"):
            [file] = (folder / "cdi").iterdir()
            content = file.read_bytes()
            file.unlink() if damage == "lost" else file.write_bytes(content[:40])
            assert await prepare(adapter, reference) == answer
            assert file.read_bytes() == content
        assert len(plugin.calls) == 3


async def test_a_corrupted_file_of_saved_plugins_is_ignored(cluster, folder):
    saved = folder / "kubelet/plugins" / DRIVER / "plugins"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(b'[{"resource": 1')
    async with running_adapter(cluster, folder), device_plugin(folder, "a") as plugin:
        await plugin.register()
        await wait_until_published(cluster, {"a": []})


async def test_device_health_follows_the_plugin(cluster, folder):
    async with adapter_and_plugin(cluster, folder, "a", "b") as (adapter, plugin):
        plugin.change(PluginDevice(id="a", health="Unhealthy"), PluginDevice(id="b", health="Healthy"))
        await wait_until_published(cluster, {"a": [f"{DRIVER}/unhealthy"], "b": []})
        report = adapter.driver.health()
        assert {device.device.device: device.health for device in report.devices} == {
            device_name("a"): 2,
            device_name("b"): 1,
        }


@pytest.fixture
def slow_disk(monkeypatch):
    """Block writes of the plugins' devices; yield an event that releases the writes, and a list of writes, each with the first id of each plugin."""
    release, writes = threading.Event(), []
    carry_out = Disk.carry_out

    def slowly(disk, steps):
        steps = tuple(steps)
        if steps[0].path.endswith("/plugins.new"):
            writes.append([plugin["devices"][0]["id"] for plugin in json.loads(steps[0].data)])
            assert release.wait(PATIENCE)
        carry_out(disk, steps)

    monkeypatch.setattr(Disk, "carry_out", slowly)
    yield release, writes
    release.set()


async def wait_until_followed(adapter, id_):
    """Wait until the adapter knows a device with this id as the first device of its only plugin."""
    await until(lambda: [plugin.devices[0].id for plugin in adapter.host.plugins() if plugin.devices] == [id_])


async def test_devices_are_saved_before_publishing_without_blocking_plugins(cluster, folder, slow_disk):
    release, writes = slow_disk
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, "a") as plugin:
        await plugin.register()
        await until(lambda: writes)
        for id_ in ("b", "c"):
            plugin.change(PluginDevice(id=id_, health="Healthy"))
            await wait_until_followed(adapter, id_)
        assert await taints_by_id(cluster) == {}
        release.set()
        await wait_until_published(cluster, {"c": []})
    assert writes == [["a"], ["c"]], "a write does not contain the latest devices"
    saved_plugins = json.loads((folder / f"kubelet/plugins/{DRIVER}/plugins").read_bytes())
    assert [saved_device["id"] for saved_device in saved_plugins[0]["devices"]] == ["c"]


async def test_a_restarted_adapter_publishes_saved_devices_without_saving(cluster, folder, slow_disk):
    release, writes = slow_disk
    release.set()
    async with running_adapter(cluster, folder), device_plugin(folder, "a") as plugin:
        await plugin.register()
        await wait_until_published(cluster, {"a": []})
    release.clear()
    writes.clear()
    async with running_adapter(cluster, folder):
        await wait_until_published(cluster, {"a": [f"{DRIVER}/disconnected"]})
        release.set()
    assert writes == []


async def test_the_latest_devices_are_saved_during_shutdown(cluster, folder, slow_disk):
    release, writes = slow_disk
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, "a") as plugin:
        await plugin.register()
        await wait_until_followed(adapter, "a")
        plugin.change(PluginDevice(id="b", health="Healthy"))
        await wait_until_followed(adapter, "b")
        asyncio.get_running_loop().call_soon(release.set)
    assert writes[-1] == ["b"]


async def test_a_plugin_problem_is_reported_and_the_adapter_stays_ready(cluster, folder):
    async with running_adapter(cluster, folder) as adapter, device_plugin(folder, "a") as plugin:
        await plugin.register()
        await wait_until_followed(adapter, "a")
        registry = adapter.driver.metrics.registry
        assert registry.get_sample_value("drawbridge_driver_plugins") == 1
        plugin.change(*(PluginDevice(id=str(number), health="Healthy") for number in range(1025)))
        await until(adapter.host.problems)
        problems, notes = adapter.driver.metrics.readiness()
        assert "more than the maximum" in notes[f"plugin {RESOURCE}"]
        assert not any("plugin" in problem for problem in problems)
        assert registry.get_sample_value("drawbridge_driver_plugin_problems") == 1
