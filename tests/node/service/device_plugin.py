"""A device plugin. A test chooses its answers: right, late, wrong or missing."""

import asyncio
import sys
from pathlib import Path

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler

from node.messages import (
    AllocateRequest,
    AllocateResponse,
    DeviceIds,
    Edits,
    Empty,
    PluginDevice,
    PluginDevices,
    PluginOptions,
    PreferenceRequest,
    PreferenceResponse,
    RegisterRequest,
)
from node.service.grpc import Codec, server_of
from tests.limits import PATIENCE

UNARY, STREAM = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM


class DevicePlugin:
    """A plugin. A test may replace the functions `make_answer` and `make_preference`; `calls` lists calls to allocate, start and prefer."""

    def __init__(self, folder, resource="example.com/thing", *ids, endpoint="thing.sock"):
        self.folder, self.resource, self.endpoint = folder, resource, endpoint
        self.devices = [PluginDevice(id=id_, health="Healthy") for id_ in ids]
        self.options = PluginOptions()
        self.calls = []
        self.changed = asyncio.Event()
        self.is_silent = False  # while True, the plugin sends no list of devices
        self.make_answer = lambda request: AllocateResponse(
            containers=tuple(Edits(variables={"THINGS": ",".join(container.ids)}) for container in request.containers)
        )
        self.make_preference = lambda _: PreferenceResponse()
        self.server = None

    def __mapping__(self):
        methods = {
            "GetDevicePluginOptions": (self._tell_options, UNARY, Empty, PluginOptions),
            "ListAndWatch": (self._list, STREAM, Empty, PluginDevices),
            "Allocate": (self._allocate, UNARY, AllocateRequest, AllocateResponse),
            "PreStartContainer": (self._start, UNARY, DeviceIds, Empty),
            "GetPreferredAllocation": (self._prefer, UNARY, PreferenceRequest, PreferenceResponse),
        }
        return {f"/v1beta1.DevicePlugin/{name}": Handler(*method) for name, method in methods.items()}

    async def __aenter__(self):
        self.server = server_of(self)
        await self.server.start(path=str(self.folder / self.endpoint))
        return self

    async def __aexit__(self, *failure):
        self.server.close()
        await self.server.wait_closed()

    async def register(self, **changes):
        fields = {"version": "v1beta1", "endpoint": self.endpoint, "resource": self.resource, "options": self.options}
        channel = Channel(path=str(self.folder / "kubelet.sock"), codec=Codec())
        try:
            call = UnaryUnaryMethod(channel, "/v1beta1.Registration/Register", RegisterRequest, Empty)
            await call(RegisterRequest(**fields | changes), timeout=PATIENCE)
        finally:
            channel.close()

    def change(self, *devices):
        self.devices = list(devices)
        self.changed.set()

    async def _list(self, stream):
        await stream.recv_message()
        while True:
            self.changed.clear()
            if not self.is_silent:
                await stream.send_message(PluginDevices(devices=tuple(self.devices)))
            await self.changed.wait()

    async def _tell_options(self, stream):
        await stream.recv_message()
        await stream.send_message(self.options)

    async def _allocate(self, stream):
        request = await stream.recv_message()
        self.calls.append(("allocate", tuple(container.ids for container in request.containers)))
        answer = self.make_answer(request)
        await stream.send_message(await answer if asyncio.iscoroutine(answer) else answer)

    async def _start(self, stream):
        request = await stream.recv_message()
        self.calls.append(("start", request.ids))
        await stream.send_message(Empty())

    async def _prefer(self, stream):
        request = await stream.recv_message()
        self.calls.append(("prefer", request.containers[0].size))
        await stream.send_message(self.make_preference(request))


async def serve(folder, resource, *ids):
    """Serve as a plugin until this process ends."""
    async with DevicePlugin(Path(folder), resource, *ids) as plugin:
        await plugin.register()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
