"""Device plugins behind a DRA driver: their devices are published and prepared, and saved for a restart."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cluster import Merge
from cluster.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from node.messages import AllocateResponse, CdiName, ClaimReference, Edits, PluginDevice, PrepareRequest
from node.plugins import Facts, FactSources
from node.service import Adapter, NodePaths
from node.service.disk import Disk
from tests.limits import PATIENCE
from tests.node.machines import NODE
from tests.node.service.device_plugin import DevicePlugin
from tests.waiting import until

DRIVER = "plugins.drawbridge.dev"
THING = "example.com/thing"


@pytest.fixture
def tmp_path():
    """Return a folder with a short path, for sockets."""
    with TemporaryDirectory(prefix="db-") as folder:
        yield Path(folder)


@asynccontextmanager
async def adapting(cluster, folder):
    """Run an adapter with its files in `folder`, and with the PCIe root of device a."""
    for name in ("sockets", "kubelet/plugins_registry"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    paths = NodePaths(NODE, str(folder / "kubelet"), str(folder / "cdi"))
    facts = FactSources({"a": Facts(pcie_root="pci0000:17")})
    adapter = Adapter(cluster, DRIVER, folder / "sockets", facts, paths)
    stop = asyncio.Event()
    running = asyncio.create_task(adapter.run(stop))
    await until(lambda: (folder / "sockets/kubelet.sock").exists() or running.done())
    try:
        yield adapter
    finally:
        stop.set()
        await running


@asynccontextmanager
async def plugged(folder, *ids):
    plugin = DevicePlugin(folder / "sockets", THING, *ids)
    await plugin.start()
    try:
        yield plugin
    finally:
        await plugin.stop()


async def published(cluster, expected):
    """Wait until the cluster has these devices, by id, with their taints."""
    async with asyncio.timeout(PATIENCE):
        while (current := await devices(cluster)) != expected:  # noqa: ASYNC110  slices of another task have no event
            await asyncio.sleep(0.01)
    return current


async def devices(cluster):
    page = await cluster.list(RESOURCE_SLICES)
    every = [device for item in page.items for device in item.spec.devices]
    return {
        published_device.attributes["id"].string: [taint.key for taint in published_device.taints]
        for published_device in every
    }


async def claim(cluster, name, *names, request="r"):
    """Create a claim with allocated devices; return the reference to the claim."""
    results = [{"request": request, "driver": DRIVER, "pool": NODE, "device": name} for name in names]
    requested = {"name": request, "exactly": {"deviceClassName": "c", "count": max(1, len(names))}}
    made = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"devices": {"requests": [requested]}}}
    stored = await cluster.create(RESOURCE_CLAIMS, made)
    reserved = [{"resource": "pods", "name": "p", "uid": "1"}]
    status = {"status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}}
    await cluster.patch(RESOURCE_CLAIMS, name, Merge(status), "ns", subresource="status")
    return ClaimReference(namespace="ns", uid=stored.metadata.uid, name=name)


async def prepare(adapter, reference):
    answer = await adapter.driver._preparing.prepare(PrepareRequest(claims=(reference,)))
    return answer.claims[reference.uid]


def name(id_):
    return f"example-com-thing-{id_}"


async def test_the_devices_of_a_plugin_are_published_prepared_and_unprepared(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a", "b") as plugin:
        await published(cluster, {})
        await plugin.register()
        await published(cluster, {"a": [], "b": []})
        page = await cluster.list(RESOURCE_SLICES)
        [device] = [device for device in page.items[0].spec.devices if device.name == name("a")]
        assert device.attributes["resource.kubernetes.io/pcieRoot"].string == "pci0000:17"
        plugin.make_answer = lambda _: AllocateResponse(
            containers=(Edits(variables={"THINGS": "a"}, cdi=(CdiName(name="vendor.com/x=1"),)),)
        )
        reference = await claim(cluster, "one", name("a"))
        answer = await prepare(adapter, reference)
        assert answer.error == ""
        assert answer.devices[0].cdi == (f"{DRIVER}/claim={reference.uid}-0", "vendor.com/x=1")
        [file] = (tmp_path / "cdi").iterdir()
        assert json.loads(file.read_text())["devices"][0]["containerEdits"]["env"] == ["THINGS=a"]
        assert await prepare(adapter, reference) == answer
        assert plugin.calls == [("allocate", (("a",),))], "asked once"
        await adapter.driver._preparing.unprepare(PrepareRequest(claims=(reference,)))
        assert list((tmp_path / "cdi").iterdir()) == []


async def test_a_taken_device_causes_no_call_of_the_plugin(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await published(cluster, {"a": []})
        assert (await prepare(adapter, await claim(cluster, "one", name("a")))).error == ""
        refused = await prepare(adapter, await claim(cluster, "two", name("a")))
        assert "Taken" in refused.error
        assert len(plugin.calls) == 1


async def test_an_invalid_answer_is_reported_and_the_call_repeated(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await published(cluster, {"a": []})
        honest, plugin.make_answer = plugin.make_answer, lambda _: AllocateResponse()
        reference = await claim(cluster, "one", name("a"))
        assert "answered 0 requests instead of 1" in (await prepare(adapter, reference)).error
        assert list((tmp_path / "cdi").iterdir()) == []
        plugin.make_answer = honest
        assert (await prepare(adapter, reference)).error == ""


async def test_a_restarted_adapter_keeps_devices_and_prepared_claims(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a", "b") as plugin:
        await plugin.register()
        await published(cluster, {"a": [], "b": []})
        reference = await claim(cluster, "one", name("a"))
        answer = await prepare(adapter, reference)
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a", "b") as plugin:
        gone = f"{DRIVER}/disconnected"
        await published(cluster, {"a": [gone], "b": [gone]})
        assert await prepare(adapter, reference) == answer
        assert plugin.calls == []
        waiting = await claim(cluster, "two", name("b"))
        assert "not connected" in (await prepare(adapter, waiting)).error
        await plugin.register()
        await published(cluster, {"a": [], "b": []})
        assert (await prepare(adapter, waiting)).error == ""


async def test_lost_files_are_written_again_when_the_kubelet_prepares(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await published(cluster, {"a": []})
        reference = await claim(cluster, "one", name("a"))
        answer = await prepare(adapter, reference)
        for spoil in ("gone", "half"):
            [file] = (tmp_path / "cdi").iterdir()
            whole = file.read_bytes()
            file.unlink() if spoil == "gone" else file.write_bytes(whole[:40])
            assert await prepare(adapter, reference) == answer
            assert file.read_bytes() == whole
        assert len(plugin.calls) == 3


async def test_a_corrupted_file_of_saved_plugins_is_ignored(cluster, tmp_path):
    folder = tmp_path / "kubelet/plugins" / DRIVER
    folder.mkdir(parents=True)
    (folder / "plugins").write_bytes(b'[{"resource": 1')
    async with adapting(cluster, tmp_path), plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await published(cluster, {"a": []})


async def test_device_health_follows_the_plugin(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a", "b") as plugin:
        await plugin.register()
        await published(cluster, {"a": [], "b": []})
        plugin.change(PluginDevice(id="a", health="Unhealthy"), PluginDevice(id="b", health="Healthy"))
        await published(cluster, {"a": [f"{DRIVER}/unhealthy"], "b": []})
        report = adapter.driver.health()
        assert {device.device.device: device.health for device in report.devices} == {name("a"): 2, name("b"): 1}


@pytest.fixture
def slow_disk(monkeypatch):
    """Block writes of the plugins' devices; yield the event that releases them, and the first id of each plugin in each write."""
    go, wrote = threading.Event(), []
    carry_out = Disk.carry_out

    def slowly(disk, steps):
        steps = tuple(steps)
        if steps[0].path.endswith("/plugins.new"):
            wrote.append([load["devices"][0]["id"] for load in json.loads(steps[0].data)])
            assert go.wait(PATIENCE)
        carry_out(disk, steps)

    monkeypatch.setattr(Disk, "carry_out", slowly)
    yield go, wrote
    go.set()


async def says(adapter, id_):
    await until(lambda: [plugin.devices[0].id for plugin in adapter.host.plugins() if plugin.devices] == [id_])


async def test_devices_are_saved_before_publishing_without_blocking_plugins(cluster, tmp_path, slow_disk):
    go, wrote = slow_disk
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await until(lambda: wrote)
        for id_ in ("b", "c"):
            plugin.change(PluginDevice(id=id_, health="Healthy"))
            await says(adapter, id_)
        assert await devices(cluster) == {}
        go.set()
        await published(cluster, {"c": []})
    assert wrote == [["a"], ["c"]], "each time the last, in order"
    kept = json.loads((tmp_path / f"kubelet/plugins/{DRIVER}/plugins").read_bytes())
    assert [saved["id"] for saved in kept[0]["devices"]] == ["c"]


async def test_a_restarted_adapter_publishes_saved_devices_without_saving(cluster, tmp_path, slow_disk):
    go, wrote = slow_disk
    go.set()
    async with adapting(cluster, tmp_path), plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await published(cluster, {"a": []})
    go.clear()
    wrote.clear()
    async with adapting(cluster, tmp_path):
        await published(cluster, {"a": [f"{DRIVER}/disconnected"]})
        go.set()
    assert wrote == []


async def test_the_latest_devices_are_saved_during_shutdown(cluster, tmp_path, slow_disk):
    go, wrote = slow_disk
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await says(adapter, "a")
        plugin.change(PluginDevice(id="b", health="Healthy"))
        await says(adapter, "b")
        asyncio.get_running_loop().call_soon(go.set)
    assert wrote[-1] == ["b"]


async def test_a_plugin_problem_is_reported_and_the_adapter_stays_ready(cluster, tmp_path):
    async with adapting(cluster, tmp_path) as adapter, plugged(tmp_path, "a") as plugin:
        await plugin.register()
        await says(adapter, "a")
        registry = adapter.driver.metrics.registry
        assert registry.get_sample_value("drawbridge_driver_plugins") == 1
        plugin.change(PluginDevice(id="x" * (5 << 20), health="Healthy"))
        await until(adapter.host.problems)
        problems, notes = adapter.driver.metrics.readiness()
        assert "is the maximum" in notes[f"plugin {THING}"]
        assert not any("plugin" in problem for problem in problems)
        assert registry.get_sample_value("drawbridge_driver_plugin_problems") == 1
