"""The adapter's calls of device plugins for one claim."""

import asyncio

import pytest

from node.checkpoint import HeldDevice, Prepared
from node.messages import Edits, PluginDevice
from node.plugins import PluginState, name_of
from node.service.adapting import plugin_writer
from node.service.prepared_store import SpecUnavailable
from tests.node.machines import NODE

RESOURCES = ("vendor.example/gpu", "vendor.example/nic")


class SlowPlugins:
    """Two plugins, each of which needs `seconds` to allocate devices."""

    def __init__(self, seconds):
        self.seconds = seconds

    def plugins(self):
        return [PluginState(resource=resource, devices=(PluginDevice(id="a"),)) for resource in RESOURCES]

    async def allocate(self, resource, devices):
        await asyncio.sleep(self.seconds)
        return {request: Edits(variables={"DEVICES": resource}) for request in devices}


@pytest.mark.parametrize(("seconds", "is_in_time"), [(0.0, True), (0.6, False)])
async def test_all_plugins_of_a_claim_share_one_time_limit(monkeypatch, seconds, is_in_time):
    monkeypatch.setattr(plugin_writer, "SECONDS", 1.0)
    writer = plugin_writer.PluginWriter("d.example", SlowPlugins(seconds), asyncio.get_running_loop())
    held_devices = tuple(
        HeldDevice(request=f"r{i}", device=name_of(resource, "a")) for i, resource in enumerate(RESOURCES)
    )
    record = Prepared(uid="u", namespace="ns", name="c", pool=NODE, devices=held_devices)
    spec = asyncio.to_thread(writer.spec, record, None)
    if is_in_time:
        assert b"vendor.example/nic" in await spec
    else:
        with pytest.raises(SpecUnavailable, match=r"gpu and vendor\.example/nic: the device plugin has not answered"):
            await spec
