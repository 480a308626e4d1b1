"""The host of device plugins, with plugins that stop, restart, send wrong answers or none."""

import asyncio
import socket
import sys
from contextlib import asynccontextmanager

import pytest
from grpclib.exceptions import GRPCError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from node.messages import (
    AllocateResponse,
    DeviceIds,
    PluginDevice,
    PluginDevices,
    PluginOptions,
    PreferenceResponse,
    RegisterRequest,
    encode,
)
from node.plugins import PluginFault, PluginState
from node.service.adapting.plugin_host import PluginHost, PluginPatience
from tests.limits import PATIENCE
from tests.node.service.device_plugin import DevicePlugin

RESOURCE = "example.com/thing"


@asynccontextmanager
async def running_host(folder, *saved_plugins, **settings):
    """Run a host; yield the host and an event that is set after each change of the host."""
    changed = asyncio.Event()
    host = PluginHost(folder, changed.set, **settings)
    async with host.serving(saved_plugins):
        yield host, changed


def device_plugin(folder, *ids, **settings):
    return DevicePlugin(folder, RESOURCE, *ids, **settings)


@asynccontextmanager
async def host_and_plugin(folder, *ids, **settings):
    """Run a host, and a plugin whose devices the host follows."""
    async with running_host(folder, **settings) as (host, changed), device_plugin(folder, *ids) as plugin:
        await plugin.register()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, [*ids])])
        yield host, changed, plugin


async def wait_until(changed, condition):
    """Wait until a condition holds; check the condition after each change of the host."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            changed.clear()
            if condition():
                return
            await changed.wait()


def plugin_states(host):
    """Return the resource, whether it is connected, and the device ids of each plugin."""
    return [(plugin.resource, plugin.connected, [device.id for device in plugin.devices]) for plugin in host.plugins()]


async def test_the_device_list_of_a_registered_plugin_is_followed(tmp_path):
    async with host_and_plugin(tmp_path, "a", "b") as (host, changed, plugin):
        plugin.change(PluginDevice(id="a", health="Unhealthy"))
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a"])])
        assert host.plugins()[0].devices[0].health == "Unhealthy"


async def test_devices_are_allocated_by_request_and_then_started(tmp_path):
    async with running_host(tmp_path) as (host, changed), device_plugin(tmp_path, "a", "b", "c") as plugin:
        plugin.options = PluginOptions(before_start=True)
        await plugin.register()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a", "b", "c"])])
        edits = await host.allocate(RESOURCE, {"one": ["a", "b"], "two": ["c"]})
        assert {name: edit.variables for name, edit in edits.items()} == {
            "one": {"THINGS": "a,b"},
            "two": {"THINGS": "c"},
        }
        assert plugin.calls == [("allocate", (("a", "b"), ("c",))), ("start", ("a", "b")), ("start", ("c",))]


async def test_preferred_devices_come_first(tmp_path):
    async with running_host(tmp_path) as (host, changed), device_plugin(tmp_path, "a", "b", "c") as plugin:
        plugin.options = PluginOptions(prefers=True)
        plugin.make_preference = lambda request: PreferenceResponse(
            containers=(
                DeviceIds(
                    ids=tuple(sorted(request.containers[0].available, reverse=True)[: request.containers[0].size])
                ),
            )
        )
        await plugin.register()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["c", "b", "a"])])


async def test_an_invalid_plugin_registration_is_refused_with_a_message(tmp_path):
    async with running_host(tmp_path) as (host, _), device_plugin(tmp_path, "a") as plugin:
        with pytest.raises(GRPCError, match="expected v1beta1"):
            await plugin.register(version="v9")
        assert host.plugins() == ()


async def test_a_stopped_plugin_keeps_its_devices_until_the_timeout(tmp_path):
    async with running_host(tmp_path, patience=PluginPatience(reconnect=0.05)) as (host, changed):
        command = [sys.executable, "-m", "tests.node.service.device_plugin", str(tmp_path), RESOURCE, "a"]
        process = await asyncio.create_subprocess_exec(*command)
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a"])])
        states = []
        host._changed = lambda: (states.append(plugin_states(host)), changed.set())
        process.kill()
        await process.wait()
        await wait_until(changed, lambda: plugin_states(host) == [])
        assert states[0] == [(RESOURCE, False, ["a"])]
        with pytest.raises(PluginFault, match="not connected"):
            await host.allocate(RESOURCE, {"one": ["a"]})


async def test_a_new_version_of_a_plugin_replaces_the_old(tmp_path):
    async with (
        host_and_plugin(tmp_path, "a") as (host, changed, old),
        device_plugin(tmp_path, "b", endpoint="new.sock") as new,
    ):
        await new.register()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["b"])])
        await host.allocate(RESOURCE, {"one": ["b"]})
        assert (old.calls, len(new.calls)) == ([], 1)


async def test_only_the_last_of_concurrent_registrations_is_followed(tmp_path):
    async with host_and_plugin(tmp_path, "a") as (host, changed, _plugin):
        requests = [RegisterRequest(version="v1beta1", endpoint="thing.sock", resource=RESOURCE) for _ in range(8)]
        await asyncio.gather(*map(host.begin_session, requests))
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a"])])
        followed = [task for task in asyncio.all_tasks() if "_Session._follow" in str(task.get_coro())]
        assert len(followed) == 1


async def test_a_plugin_without_a_socket_is_ignored(tmp_path):
    async with running_host(tmp_path) as (host, _), device_plugin(tmp_path, "a") as plugin:
        await plugin.register(endpoint="missing.sock", resource="example.com/missing")
        await plugin.register()
        with pytest.raises(PluginFault, match="not connected"):
            await host.allocate("example.com/missing", {"one": ["a"]})


async def test_a_wrong_failed_or_missing_answer_is_reported(tmp_path):
    async with host_and_plugin(tmp_path, "a") as (host, _changed, plugin):
        plugin.make_answer = lambda _: AllocateResponse()
        with pytest.raises(PluginFault, match="answered 0 requests instead of 1"):
            await host.allocate(RESOURCE, {"one": ["a"]})

        def fail(request):
            raise RuntimeError("no card")

        plugin.make_answer = fail
        with pytest.raises(PluginFault, match="does not answer Allocate"):
            await host.allocate(RESOURCE, {"one": ["a"]})
        host._sessions[RESOURCE]._patience = PluginPatience(answer=0.1)
        plugin.make_answer = lambda _: asyncio.sleep(60)
        with pytest.raises(PluginFault, match="does not answer Allocate"):
            await host.allocate(RESOURCE, {"one": ["a"]})


@asynccontextmanager
async def raw_plugin(folder, headers, data):
    """Serve as a plugin that answers each call with these headers, and then with this data unless the data is None."""

    async def serve(reader, writer):
        connection = H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while received := await reader.read(1 << 16):
            for event in connection.receive_data(received):
                if isinstance(event, RequestReceived):
                    connection.send_headers(event.stream_id, headers, end_stream=data is None)
                    if data is not None:
                        connection.send_data(event.stream_id, data, end_stream=True)
            writer.write(connection.data_to_send())
        writer.close()

    async with await asyncio.start_unix_server(serve, str(folder / "raw.sock")):
        yield


LIST_MESSAGE = encode(PluginDevices(devices=(PluginDevice(id="b", health="Healthy"),)))
TYPE_HEADER, STATUS_HEADER = ("content-type", "application/grpc+proto"), (":status", "200")


@pytest.mark.parametrize(
    ("headers", "data", "kept_id"),
    [
        ([TYPE_HEADER], None, "a"),
        ([STATUS_HEADER, TYPE_HEADER], b"\0" + len(LIST_MESSAGE).to_bytes(4, "big") + LIST_MESSAGE, "b"),
        ([STATUS_HEADER, TYPE_HEADER], b"\0\0\0\0\3\xff\xff\xff", "a"),
        ([STATUS_HEADER, TYPE_HEADER, ("grpc-status", "-1"), ("grpc-message", "%ff%zz%1b")], None, "a"),
    ],
    ids=["no HTTP status", "no gRPC status", "invalid message", "invalid gRPC status"],
)
async def test_a_plugin_with_invalid_messages_is_disconnected_and_reported(headers, data, kept_id, tmp_path):
    """An earlier version stopped following such a plugin, and the plugin's devices stayed healthy forever."""
    async with host_and_plugin(tmp_path, "a", patience=PluginPatience(answer=0.2)) as (host, changed, plugin):
        changed.clear()
        async with raw_plugin(tmp_path, headers, data):
            await plugin.register(endpoint="raw.sock")
            await wait_until(changed, lambda: "disconnected" in host.problems().get(RESOURCE, ""))
            await asyncio.wait_for(changed.wait(), PATIENCE)
        assert plugin_states(host) == [(RESOURCE, False, [kept_id])]
        with pytest.raises(PluginFault, match="not connected"):
            await host.allocate(RESOURCE, {"one": ["a"]})


async def test_a_plugin_without_a_list_after_registering_again_is_reported(tmp_path):
    """In an earlier version the devices stayed healthy forever, and pods with these devices did not start."""
    async with host_and_plugin(tmp_path, "a", patience=PluginPatience(answer=0.2)) as (host, changed, plugin):
        changed.clear()
        plugin.is_silent = True
        await plugin.register()
        await asyncio.wait_for(changed.wait(), PATIENCE)
        assert plugin_states(host) == [(RESOURCE, False, ["a"])]
        assert host.problems() == {RESOURCE: "it has sent no list of its devices"}
        plugin.is_silent = False
        plugin.changed.set()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a"])])
        assert host.problems() == {}


async def test_the_number_of_plugins_is_bounded(tmp_path):
    async with running_host(tmp_path, max_plugins=2), device_plugin(tmp_path, "a") as plugin:
        await plugin.register(resource="example.com/a")
        await plugin.register(resource="example.com/b")
        with pytest.raises(GRPCError, match="2 resources are registered"):
            await plugin.register(resource="example.com/c")
        await plugin.register(resource="example.com/b")


async def test_a_plugins_devices_beyond_the_maximum_are_dropped_and_reported(tmp_path):
    async with running_host(tmp_path) as (host, changed), device_plugin(tmp_path, *map(str, range(1030))) as plugin:
        await plugin.register()
        await wait_until(changed, lambda: host.plugins() and host.plugins()[0].connected)
        assert [device.id for device in host.plugins()[0].devices] == [str(number) for number in range(1024)]
        assert host.problems() == {RESOURCE: "it has 6 devices more than the maximum of 1024"}
        plugin.change(PluginDevice(id="a", health="Healthy"))
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a"])])
        assert host.problems() == {}


async def test_saved_devices_are_kept_until_the_plugin_registers(tmp_path):
    saved = PluginState(resource=RESOURCE, devices=(PluginDevice(id="a", health="Healthy"),), connected=False)
    async with running_host(tmp_path, saved) as (host, changed), device_plugin(tmp_path, "a", "b") as plugin:
        assert plugin_states(host) == [(RESOURCE, False, ["a"])]
        await plugin.register()
        await wait_until(changed, lambda: plugin_states(host) == [(RESOURCE, True, ["a", "b"])])


async def test_a_stale_temporary_socket_does_not_block_a_host(tmp_path):
    with socket.socket(socket.AF_UNIX) as stale_socket:
        stale_socket.bind(str(tmp_path / ".kubelet.sock"))
    async with host_and_plugin(tmp_path, "a"):
        pass


async def test_a_restarted_host_replaces_the_old_socket(tmp_path):
    (tmp_path / "kubelet.sock").write_text("left behind")
    async with host_and_plugin(tmp_path, "a"):
        pass
