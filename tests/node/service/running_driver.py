"""A driver that runs on an embedded cluster, and claims for the driver to prepare."""

import asyncio
import contextlib

from cluster import Merge
from cluster.informers import Backoff
from cluster.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from node.messages import ClaimReference
from node.service import Driver
from tests import objects
from tests.limits import PATIENCE
from tests.node import machines
from tests.node.machines import gpu

NIC = {"name": "nic", "interface": "eth1"}
DEVICE_FILES = {"deviceNodes": ["/dev/null", "/dev/no-such-card"]}


def machine(**parts):
    return machines.machine(**(parts or {"gpus": [gpu(0), gpu(1)], "nics": [NIC]}))


async def eventually(condition):
    async with asyncio.timeout(PATIENCE):
        while not (value := await condition()):  # noqa: ASYNC110  changes by another process have no event
            await asyncio.sleep(0.01)
    return value


@contextlib.asynccontextmanager
async def running_driver(cluster, kubelet, node_machine=None, **options):
    driver = Driver(cluster, node_machine or machine(), kubelet.paths, **options)
    before = kubelet.sockets()
    stop = asyncio.Event()
    task = asyncio.create_task(driver.run(stop))

    async def listens():
        if task.done():
            await task
        return len(kubelet.sockets()) > len(before)

    await eventually(listens)
    try:
        yield driver
    finally:
        stop.set()
        await task


async def create_claim(cluster, name, *results):
    """Create a claim with these allocation results; return a reference to the claim."""
    stored = await cluster.create(RESOURCE_CLAIMS, objects.claim(name, objects.exactly("c"), namespace="ns"))
    await set_allocation(cluster, name, *results)
    return ClaimReference(namespace="ns", name=name, uid=stored.metadata.uid)


async def set_allocation(cluster, name, *results):
    """Replace the allocation results of a claim; without results, deallocate the claim."""
    status = {"allocation": None, "reservedFor": None, "devices": None}
    if results:
        consumer = {"resource": "pods", "name": "p", "uid": "pod"}
        status = {"allocation": {"devices": {"results": list(results)}}, "reservedFor": [consumer]}
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), "ns", subresource="status")


async def reallocate(cluster, name, *results):
    """Deallocate a claim, then allocate it with these results."""
    await set_allocation(cluster, name)
    await set_allocation(cluster, name, *results)


async def list_slices(cluster):
    return (await cluster.list(RESOURCE_SLICES)).items


class RecordedBackoff(Backoff, frozen=True):
    """Records the numbers of failures, and does not wait."""

    counts: list[int] = []

    def seconds(self, failures, fraction, error=None):
        del fraction, error
        self.counts.append(failures)
        return 0.0
