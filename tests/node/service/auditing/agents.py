"""An audit agent for tests, its objects in the cluster, and its sources on the node."""

import asyncio
import contextlib

from cluster import Merge
from cluster.resources import DEVICE_TAINT_RULES, EVENTS, RESOURCE_CLAIMS
from node.audit import COMPONENT
from node.checkpoint import Checkpoint, HeldDevice, Prepared, encode
from node.service import Agent, AgentSettings
from serving.http import Head
from tests.limits import PATIENCE
from tests.node.audit.snapshots import allocated_claim
from tests.node.machines import NODE, result


class watching_agent:  # noqa: N801  used as a function
    """Yield an agent that watches the objects of its node. The agent does nothing else until the test calls `round`."""

    def __init__(self, cluster, paths, **settings):
        self.agent = Agent(cluster, AgentSettings(metrics=None, paths=paths, audit_interval=0.0, **settings))

    async def __aenter__(self):
        self.watching = asyncio.create_task(self.agent.watcher.run())
        await self.agent.watcher.wait_for_sync(PATIENCE)
        return self.agent

    async def __aexit__(self, *failure):
        self.watching.cancel()
        await asyncio.gather(self.watching, return_exceptions=True)


async def tainted_devices(cluster):
    page = await cluster.list(DEVICE_TAINT_RULES)
    return sorted(item.spec.device_selector.device for item in page.items)


async def event_messages(cluster, kind="Node"):
    page = await cluster.list(EVENTS)
    own_events = [
        item for item in page.items if item.reporting_component == COMPONENT and item.involved_object.kind == kind
    ]
    return {event.reason: event.message for event in own_events}


@contextlib.asynccontextmanager
async def running_agent(cluster, paths, **settings):
    """Run an agent as its process does."""
    stop = asyncio.Event()
    task = asyncio.create_task(Agent(cluster, AgentSettings(metrics=None, paths=paths, **settings)).run(stop))
    yield
    stop.set()
    await asyncio.wait_for(task, PATIENCE)


def metrics_of(agent):
    """Return the text that Prometheus reads."""
    return agent.metrics.answer(Head("GET", "/metrics", "", {}, 0), b"").body.decode()


async def allocate(cluster, device="gpu-0"):
    """Create the claim `c` with a device."""
    await cluster.create(RESOURCE_CLAIMS, allocated_claim("c"))
    allocation = {"devices": {"results": [result(device)]}}
    await cluster.patch(RESOURCE_CLAIMS, "c", Merge({"status": {"allocation": allocation}}), "ns", subresource="status")


def record_of(claim, *device_names, **fields):
    devices = tuple(HeldDevice(request="r", device=name) for name in device_names)
    return Prepared(
        **{"uid": f"uid-{claim}", "namespace": "ns", "name": claim, "pool": NODE, "devices": devices} | fields
    )


def write_checkpoint(root, driver, *records, is_truncated=False):
    """Write a checkpoint into the folder of a driver, as any program may do."""
    folder = root / "plugins" / driver
    folder.mkdir()
    (folder / "checkpoint").write_bytes(encode(Checkpoint().with_records(*records))[: 30 if is_truncated else None])


def touch(path):
    path.touch()
    return path
