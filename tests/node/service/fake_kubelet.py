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
    """The kubelet's PodResources service. Its answers are `answer`, with the pods of the node, and `offer`.

    If `answer` is None, the service returns an error. If `answer` is a coroutine function, the service calls it and does not answer.
    """

    def __init__(self, kubelet_folder):
        self.folder = kubelet_folder / "pod-resources"
        self.folder.mkdir(parents=True)
        self.path = self.folder / "kubelet.sock"
        self.answer, self.offer = PodHoldings(), PluginsOffer()
        self.list_calls = 0
        self.server = None

    def __mapping__(self):
        methods = {"List": (self._list, PodHoldings), "GetAllocatableResources": (self._send_offer, PluginsOffer)}
        return {
            f"/v1.PodResourcesLister/{name}": Handler(method, Cardinality.UNARY_UNARY, Empty, type_)
            for name, (method, type_) in methods.items()
        }

    async def start(self):
        self.server = server_of(self)
        await self.server.start(path=str(self.path))

    async def stop(self):
        self.server.close()
        await self.server.wait_closed()
        self.path.unlink(missing_ok=True)

    def set_pods(self, *pods):
        self.answer = PodHoldings(pods=pods)

    async def _list(self, stream):
        await stream.recv_message()
        self.list_calls += 1
        if inspect.iscoroutinefunction(self.answer):
            await self.answer()
        elif self.answer is None:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
        else:
            await stream.send_message(self.answer)

    async def _send_offer(self, stream):
        await stream.recv_message()
        await stream.send_message(self.offer)


DRA_ROUTE = "/k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin/Node{}Resources"
REGISTRATION_ROUTE = "/pluginregistration.Registration/{}"


class Kubelet:
    """The calls of a kubelet to a driver."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("plugins_registry", "pods"):
            (folder / name).mkdir()
        self.paths = NodePaths(NODE, str(folder), str(folder / "cdi"))

    def create_pod(self, uid):
        (self.folder / "pods" / uid).mkdir()

    def remove_pod(self, uid):
        (self.folder / "pods" / uid).rmdir()

    def sockets(self):
        return sorted((self.folder / "plugins_registry").iterdir())

    def cdi_files(self):
        return sorted(Path(self.paths.cdi).iterdir())

    async def call(self, path, route, request, answer_type):
        async with Channel(path=str(path), codec=Codec()) as channel:
            return await UnaryUnaryMethod(channel, route, type(request), answer_type)(request, timeout=PATIENCE)

    async def register(self):
        [socket_path] = self.sockets()
        info = await self.call(socket_path, REGISTRATION_ROUTE.format("GetInfo"), Empty(), PluginInfo)
        status = RegistrationStatus(registered=True)
        await self.call(socket_path, REGISTRATION_ROUTE.format("NotifyRegistrationStatus"), status, Empty)
        return info

    async def prepare(self, endpoint, *references, version="v1"):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA_ROUTE.format(version, "Prepare"), request, PrepareResponse)).claims

    async def unprepare(self, endpoint, *references):
        request = PrepareRequest(claims=references)
        return (await self.call(endpoint, DRA_ROUTE.format("v1", "Unprepare"), request, UnprepareResponse)).claims
