"""A driver that runs on an embedded cluster, and the claims that it prepares."""

import asyncio
import contextlib

from cluster import Merge
from cluster.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from node.inventory import machine_of, read_inventory
from node.messages import ClaimReference
from node.service import Driver
from runtime.informers import Backoff
from tests.limits import PATIENCE
from tests.node.machines import inventory_document, gpu

NIC = {"name": "nic", "interface": "eth1"}
FILES = {"deviceNodes": ["/dev/null", "/dev/no-such-card"]}


def machine(**parts):
    inventory, problems = read_inventory(inventory_document(**(parts or {"gpus": [gpu(0), gpu(1)], "nics": [NIC]})))
    assert problems == []
    return machine_of(inventory)


async def eventually(condition):
    async with asyncio.timeout(PATIENCE):
        while not (value := await condition()):  # noqa: ASYNC110  another process's files and objects have no event
            await asyncio.sleep(0.01)
    return value


@contextlib.asynccontextmanager
async def running(cluster, kubelet, made=None, **terms):
    driver = Driver(cluster, made or machine(), kubelet.paths, **terms)
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


async def allocated(cluster, name, *results):
    """Create a claim with these allocation results; return the reference to it."""
    stored = await cluster.create(
        RESOURCE_CLAIMS,
        {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        },
        "ns",
    )
    status = {
        "allocation": {"devices": {"results": list(results)}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod"}],
    }
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), "ns", subresource="status")
    return ClaimReference(namespace="ns", name=name, uid=stored.metadata.uid)


async def slices(cluster):
    return (await cluster.list(RESOURCE_SLICES)).items


class RecordedBackoff(Backoff, frozen=True):
    """Records the numbers of failures, and does not wait."""

    counts: list[int] = []

    def seconds(self, failures, fraction, error=None):
        del fraction, error
        self.counts.append(failures)
        return 0.0
