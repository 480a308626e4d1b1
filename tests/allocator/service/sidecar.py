"""A fleet on the embedded store, the allocator's service beside it, and a client that asks it over its own ports."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import aiohttp

from allocator.service import Service, Settings
from cluster import resources
from cluster.embedded import Embedded
from runtime.controllers import Term
from tests.waiting import until

DRIVER = "gpu.example.com"
# Each renewal is a write that wakes every watch of the embedded cluster: often enough for the waiting replica to take over.
TERM = Term(retry=0.2)


def node(name, **status):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def gpus(node_name, count):
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{at}"} for at in range(count)]
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node_name, "devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node_name}-gpus"}, "spec": spec}  # fmt: skip


def device_class(name="gpu", **spec):
    chosen = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}], **spec}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": chosen}


def claim(name, count=1, class_name="gpu"):
    request = {"name": "r", "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}}
    meta = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": meta, "spec": {"devices": {"requests": [request]}}}  # fmt: skip


def pod(name, *claims, **spec):
    meta = {"name": name, "namespace": "default", "uid": f"pod-{name}"}
    entries = [{"name": one, "resourceClaimName": one} for one in claims]
    chosen = {"schedulerName": "drawbridge", "containers": [{"name": "main", "image": "train"}], "resourceClaims": entries}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": chosen | spec}


def fleet(nodes=2, each=2):
    names = [f"n{at}" for at in range(nodes)]
    return [device_class(), *(node(name) for name in names), *(gpus(name, each) for name in names)]


class Sidecar:
    """Asks a service that runs."""

    def __init__(self, cluster, service, sessions, listening):
        self.listening = listening
        self.cluster = cluster
        self.service = service
        self.bridge = service.bridge
        self._sessions = sessions
        self.headers = {}

    async def ask(self, path, body=None, **query):
        method = "GET" if body is None else "POST"
        session = self._sessions[path.split("/")[1]]
        async with session.request(
            method, f"http://drawbridge{path}", json=body, params=query, headers=self.headers
        ) as answer:
            return answer.status, await answer.json()

    async def plugin(self, call, body=None, **query):
        return await self.ask(f"/plugin/v1/{call}", body, **query)

    async def claim(self, name):
        return await self.cluster.get(resources.RESOURCE_CLAIMS, name, "default")

    async def pod(self, name):
        """The pod as a scheduler sends it."""
        return await self.cluster.get(resources.PODS.raw, name, "default")

    async def held(self, name):
        allocation = (await self.claim(name)).status.allocation
        return [f"{one.pool}/{one.device}" for one in allocation.devices.results] if allocation else []

    async def place(self, name, node=None):
        """Do with a pod what a scheduler does, up to the binding."""
        _, found = await self.plugin("prefilter", {"pod": await self.pod(name)})
        chosen = node or found["nodes"][0]["name"]
        status, reserved = await self.plugin("reserve", {"token": found["token"], "node": chosen})
        if status != 200:
            return status, reserved
        return await self.plugin("commit", {"reservation": reserved["reservation"]})


@contextlib.asynccontextmanager
async def running(cluster, *, identity="one", leads=True, reviewing=None, **settings):
    """A service on its sockets; it leads as soon as this is entered, if it is to."""
    with tempfile.TemporaryDirectory() as folder:
        sockets = {name: Path(folder, name) for name in ("plugin", "extender", "api")}
        chosen = {"metrics": None, "term": TERM, "tick": 0.05} | settings
        service = Service(
            cluster, Settings(identity=identity, namespace="default", **sockets, **chosen), reviewing=reviewing
        )
        stop, ready = asyncio.Event(), asyncio.Event()
        places = []
        run = asyncio.create_task(service.run(stop, lambda where: (places.append(where), ready.set())))
        try:
            await until(lambda: run.done() or (ready.is_set() and (service.bridge.lead.leads or not leads)))
            if run.done():
                await run
            async with contextlib.AsyncExitStack() as stack:
                sessions = {}
                for group, path in sockets.items():
                    session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))
                    sessions[group] = await stack.enter_async_context(session)
                yield Sidecar(cluster, service, sessions, places[0])
        finally:
            stop.set()
            await run


def loaded(*objects):
    cluster = Embedded()
    cluster.load(list(objects))
    return cluster
