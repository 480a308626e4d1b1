"""A fleet on the embedded store, the allocator's service, and a client of the service's ports."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import aiohttp

from allocator.decisions import PlacementRules
from allocator.service import AllocatorServer, AllocatorSettings
from cluster import resources
from cluster.controllers import Term
from cluster.embedded import Embedded
from cluster.patch import Merge
from dra.server import DeclaredServer
from tests import objects
from tests.limits import PATIENCE
from tests.objects import container, device_quota, exactly, resource_slice
from tests.waiting import until

DRIVER = "gpu.example.com"
# Seconds between the attempts to get or renew the Lease. More attempts would slow the tests, as each renewal wakes every watch of the store.
TERM = Term(retry=0.2)
RULES = PlacementRules()


class SettableClock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


def node(name, **status):
    return objects.node(name, status=status)


def gpus(nodeName, count):
    """Return a node's ResourceSlice with this number of devices."""
    devices = [f"gpu-{i}" for i in range(count)]
    return resource_slice(f"{nodeName}-gpus", *devices, driver=DRIVER, pool=nodeName, nodeName=nodeName)


def device_class(name="gpu", **spec):
    return objects.device_class(name, f"device.driver == '{DRIVER}'", **spec)


def claim(name, count=1, class_name="gpu", *, memory="", selectors=(), **fields):
    """Return a claim for this number of devices that match these expressions, each with this much memory."""
    cel = {"selectors": [{"cel": {"expression": text}} for text in selectors]} if selectors else {}
    request = exactly(class_name, count=count, memory=memory, **cel)
    return objects.claim(name, request, **{"uid": f"claim-{name}"} | fields)


def pod(name, *claims, **fields):
    return objects.pod(name, *claims, **{"uid": f"pod-{name}", "schedulerName": "drawbridge"} | fields)


def pods_with_claims(*names, **fields):
    """Return, for each name, a claim for one device, and a pod with these fields that uses it."""
    return [*map(claim, names), *(pod(name, name, **fields) for name in names)]


EXTENDED_RESOURCE_CLASS = device_class("served", extendedResourceName="example.com/gpu")


def pod_with_extended_resource(name, count=1, **spec):
    """Return a pod that requests an extended resource of a DeviceClass."""
    return pod(name, containers=[container("c", {"example.com/gpu": str(count)})], **spec)


def fleet(nodes=2, each=2):
    """Return a DeviceClass, and nodes with `each` devices per node."""
    names = [f"n{i}" for i in range(nodes)]
    return [device_class(), *(node(name) for name in names), *(gpus(name, each) for name in names)]


class Sidecar:
    """A client of a running service; the tests also look into the service itself."""

    def __init__(self, cluster, service, sessions, listening):
        self.listening = listening
        self.cluster = cluster
        self.service = service
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
        """Return the pod as a scheduler sends it."""
        return await self.cluster.get(resources.PODS.raw, name, "default")

    async def allocated_devices(self, name):
        """Return the devices that are allocated for a claim, as pool/device."""
        allocation = (await self.claim(name)).status.allocation
        return [f"{result.pool}/{result.device}" for result in allocation.devices.results] if allocation else []

    async def prefilter(self, name):
        """Return the answer about a pod's nodes."""
        return (await self.plugin("prefilter", {"pod": await self.pod(name)}))[1]

    async def reserve(self, name, node=None):
        """Call prefilter and reserve for a pod, on this node or on the first that fits; return the last status and answer."""
        answer = await self.prefilter(name)
        chosen_node = node or answer["nodes"][0]["name"]
        return await self.plugin("reserve", {"token": answer["token"], "node": chosen_node})

    async def place(self, name, node=None):
        """Call the allocator for a pod as the scheduler's plugin does before the binding; return the last status and answer."""
        status, reserved = await self.reserve(name, node)
        return (status, reserved) if status != 200 else await self.plugin("commit", reserved)

    async def try_to_place(self, name):
        """Return whether a pod fits on a node and its commit succeeds."""
        answer = await self.prefilter(name)
        return bool(answer.get("nodes")) and (await self.place(name, answer["nodes"][-1]["name"]))[0] == 200

    def reservation(self, name):
        """Return the ledger's reservation for a pod, or None."""
        return self.service.ledger.state.reservations.get(f"pod-{name}")

    async def until_pod(self, name, condition):
        """Wait until the service knows a version of a pod for which the condition is true."""
        await until(lambda: (seen := self.service.pods.find(f"pod-{name}")) and condition(seen))

    async def free_claim(self, name):
        """Remove a claim's allocation, as kube-controller-manager does once the claim's pods are gone, and wait until the service sees it."""
        empty = Merge({"status": {"allocation": None, "reservedFor": None}})
        await self.cluster.patch(resources.RESOURCE_CLAIMS, name, empty, "default", subresource="status")
        await until(lambda: self.service.knowledge.stock.claims[f"default/{name}"].status.allocation is None)


@contextlib.asynccontextmanager
async def running(cluster, *, identity="one", leads=True, rules=RULES, free=PATIENCE, **settings):
    """Run a service on sockets; yield a client once the service is ready and, if `leads` is true, leads.

    Namespaces do not owe for questions that take less than `free` seconds of CPU time.
    """
    with tempfile.TemporaryDirectory() as folder:
        sockets = {name: Path(folder, name) for name in ("plugin", "api")}
        service_settings = {"metrics": None, "term": TERM, "tick": 0.05} | settings
        settings = AllocatorSettings(identity=identity, namespace="default", **sockets, **service_settings)
        service = AllocatorServer(cluster, settings)
        service.configure(rules, DeclaredServer())
        # On a busy machine any question may take longer than a scheduler waits, and more time than a namespace may owe.
        service.runner.seconds, service.pods.turns.free = PATIENCE, free
        stop, ready = asyncio.Event(), asyncio.Event()
        listening = []
        run = asyncio.create_task(service.run(stop, lambda addresses: (listening.append(addresses), ready.set())))
        try:
            await until(lambda: run.done() or (ready.is_set() and (service.lead.leads or not leads)))
            if run.done():
                await run
            async with contextlib.AsyncExitStack() as stack:
                sessions = {}
                for group, path in sockets.items():
                    session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path)))
                    sessions[group] = await stack.enter_async_context(session)
                yield Sidecar(cluster, service, sessions, listening[0])
        finally:
            stop.set()
            await run


def loaded(*objects, cluster=None):
    """Return an embedded store, or this cluster, with these objects."""
    cluster = cluster or Embedded()
    cluster.load(list(objects))
    return cluster


async def until_deallocated(sidecar, name):
    """Wait until a claim has no allocation."""

    async def is_deallocated():
        return not await sidecar.allocated_devices(name)

    await until(is_deallocated)


async def until_event(cluster, words):
    """Wait for an Event whose message contains these words. Events are written in the background."""

    async def is_written():
        return any(words in event.message for event in (await cluster.list(resources.EVENTS)).items)

    await until(is_written)


def quota_of(name="team", **hard):
    """Return a DeviceQuota with these limits. The argument `gpu__devices` sets the limit of `gpu/devices`."""
    return device_quota(name, {key.replace("__", "/"): amount for key, amount in hard.items()})
