"""A kubelet that reports which devices containers have, and a kubelet that calls drivers."""

import inspect
from pathlib import Path

from grpclib import GRPCError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status

from node.messages import (
    Empty,
    PluginInfo,
    PluginsOffer,
    PodHoldings,
    PrepareRequest,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
)
from node.service import NodePaths
from node.service.grpc import Codec, server_of
from tests.limits import PATIENCE
from tests.node.machines import NODE


class PodResources:
    """The kubelet's PodResources service. `said` and `offer` are its answers.

    `said` may also be None, for an error, or a coroutine function, for no answer.
    """

    def __init__(self, kubelet):
        self.folder = kubelet / "pod-resources"
        self.folder.mkdir(parents=True)
        self.path = self.folder / "kubelet.sock"
        self.said, self.offer = PodHoldings(), PluginsOffer()
        self.asked = 0
        self.server = None

    def __mapping__(self):
        rows = {"List": (self._list, PodHoldings), "GetAllocatableResources": (self._tell, PluginsOffer)}
        return {
            f"/v1.PodResourcesLister/{name}": Handler(answer, Cardinality.UNARY_UNARY, Empty, type_)
            for name, (answer, type_) in rows.items()
        }

    async def start(self):
        self.server = server_of(self)
        await self.server.start(path=str(self.path))

    async def stop(self):
        self.server.close()
        await self.server.wait_closed()
        self.path.unlink(missing_ok=True)

    def have(self, *pods):
        self.said = PodHoldings(pods=pods)

    async def _list(self, stream):
        await stream.recv_message()
        self.asked += 1
        if inspect.iscoroutinefunction(self.said):
            await self.said()
        elif self.said is None:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
        else:
            await stream.send_message(self.said)

    async def _tell(self, stream):
        await stream.recv_message()
        await stream.send_message(self.offer)


DRA = "/k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin/Node{}Resources"
REGISTRATION = "/pluginregistration.Registration/{}"


class Kubelet:
    """The calls of a kubelet to a driver."""

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
        status = RegistrationStatus(registered=True)
        await self.call(socket_, REGISTRATION.format("NotifyRegistrationStatus"), status, Empty)
        return info

    async def prepare(self, endpoint, *references, version="v1"):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA.format(version, "Prepare"), request, PrepareResponse)).claims

    async def unprepare(self, endpoint, *references):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA.format("v1", "Unprepare"), request, UnprepareResponse)).claims
