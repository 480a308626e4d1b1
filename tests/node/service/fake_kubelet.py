"""A kubelet that says which devices containers have: as it is told, late, wrongly, or not at all."""

import inspect

from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status

from node.messages import Empty, PluginsOffer, PodHoldings
from node.service.grpc import server_of


class PodResources:
    """The kubelet's PodResources service. `said` and `offer` are what it answers; an exception or an awaitable may stand there, too."""

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
