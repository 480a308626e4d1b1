"""Measures how long the kubelet waits for NodePrepareResources, for a claim with eight devices, over a unix socket.

The driver does all its work, with sockets, guard, checkpoint, CDI file and fsyncs. The API server is the embedded store in the same process.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpclib.client import Channel, UnaryUnaryMethod

from bench.row import Row
from cluster import Merge
from cluster.embedded import Embedded
from cluster.resources import NAMESPACES, NODES, RESOURCE_CLAIMS
from node.inventory import machine_of, read_inventory
from node.messages import ClaimReference, PrepareRequest, PrepareResponse, UnprepareResponse
from node.service import Driver, NodePaths
from node.service.grpc import Codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

DRIVER, NODE = "devices.example.com", "node"
DEVICES, ROUNDS = 8, 200
PLUGIN = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{}Resources"


def rows() -> Iterator[Row]:
    """Prepare and unprepare repeatedly."""
    prepared, unprepared = asyncio.run(_measure())
    for what, times in (("NodePrepareResources", prepared), ("NodeUnprepareResources", unprepared)):
        worst = statistics.quantiles(times, n=100)[98]
        median = statistics.median(times) * 1000
        yield Row(
            what=f"{what}, {DEVICES} devices, p99 of {ROUNDS}",
            unit="ms",
            ours=worst * 1000,
            target="< 50 ms",
            note=f"median {median:.1f} ms",
        )


async def _measure() -> tuple[list[float], list[float]]:
    prepared: list[float] = []
    unprepared: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with _driver(Path(folder)) as (endpoint, request), Channel(path=endpoint, codec=Codec()) as channel:
            prepare = UnaryUnaryMethod(channel, PLUGIN.format("Prepare"), PrepareRequest, PrepareResponse)
            unprepare = UnaryUnaryMethod(channel, PLUGIN.format("Unprepare"), PrepareRequest, UnprepareResponse)
            for _ in range(ROUNDS):
                started = time.perf_counter()
                answer = await prepare(request)
                prepared.append(time.perf_counter() - started)
                [claim] = answer.claims.values()
                if claim.error or len(claim.devices) != DEVICES:
                    raise RuntimeError(f"not prepared: {claim}")
                started = time.perf_counter()
                await unprepare(request)
                unprepared.append(time.perf_counter() - started)
    return prepared, unprepared


@contextlib.asynccontextmanager
async def _driver(folder: Path) -> AsyncIterator[tuple[str, PrepareRequest]]:
    """Start a driver for a node with eight GPUs, and allocate them all to one claim."""
    cluster = Embedded()
    reference = await _allocate(cluster)
    gpus = [{"name": f"gpu-{number}", "uuid": f"GPU-{number}", "memory": "40Gi"} for number in range(DEVICES)]
    head = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceInventory", "driver": DRIVER}
    inventory, problems = read_inventory({**head, "gpus": gpus})
    if inventory is None:
        raise RuntimeError(str(problems))
    for name in ("plugins_registry", "pods"):
        (folder / name).mkdir()
    driver = Driver(cluster, machine_of(inventory), NodePaths(NODE, str(folder), str(folder / "cdi")))
    stop = asyncio.Event()
    running = asyncio.create_task(driver.run(stop))
    await driver.publisher.published.wait()
    [endpoint] = (folder / "plugins" / DRIVER).glob("dra-*.sock")
    try:
        yield str(endpoint), PrepareRequest(claims=(reference,))
    finally:
        stop.set()
        await running
        await cluster.close()


async def _allocate(cluster: Embedded) -> ClaimReference:
    await cluster.create(NODES, {"metadata": {"name": NODE}})
    await cluster.create(NAMESPACES, {"metadata": {"name": "ns"}})
    device_request = {"name": "r", "exactly": {"deviceClassName": "c", "count": DEVICES}}
    spec = {"devices": {"requests": [device_request]}}
    stored = await cluster.create(RESOURCE_CLAIMS, {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}, "ns")
    results = [{"request": "r", "driver": DRIVER, "pool": NODE, "device": f"gpu-{number}"} for number in range(DEVICES)]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    await cluster.patch(RESOURCE_CLAIMS, "c", Merge({"status": status}), "ns", subresource="status")
    return ClaimReference(namespace="ns", name="c", uid=stored.metadata.uid)
