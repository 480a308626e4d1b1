"""The plugin's call `wake`, on the embedded store: it returns the waiting pods that a change requeues."""

import asyncio

from allocator.decisions import Decider
from cluster import resources
from cluster.patch import Merge
from tests import objects
from tests.allocator.service.sidecar import (
    claim,
    device_class,
    fleet,
    gpus,
    loaded,
    node,
    pod,
    running,
    until,
)
from tests.objects import resource_slice


async def test_freed_devices_requeue_only_pods_that_fit_now():
    """The first free device requeues a pod that requests one device of its class; the second requeues another, and the pod that requests two."""
    held_claims = [claim("a"), claim("b"), claim("c", class_name="nic")]
    waiting_claims = [claim("p"), claim("q"), claim("r", class_name="nic"), claim("s", 2)]
    nic_slice = resource_slice("n0-nic", "nic-0", driver="nic.example.com", pool="n0", nodeName="n0")
    nics = [nic_slice, objects.device_class("nic", "device.driver == 'nic.example.com'")]
    pods = [pod(f"of-{name}", name) for name in "abcpqrs"]
    cluster = loaded(*fleet(1, 2), *nics, *held_claims, *waiting_claims, *pods)
    async with running(cluster) as sidecar:
        for name in "abc":
            assert (await sidecar.place(f"of-{name}"))[1]["committed"]
        for name in "pqrs":
            assert (await sidecar.prefilter(f"of-{name}"))["verdict"] == "full"
        for name, expected_pods in (
            ("a", {"default/of-p"}),
            ("c", {"default/of-r"}),
            ("b", {"default/of-q", "default/of-s"}),
        ):
            assert (
                await requeued_by(sidecar, sidecar.free_claim(name), {f"default/of-{holder}" for holder in "abc"})
                == expected_pods
            )


async def requeued_by(sidecar, change, holders):
    """Make a change; return the pods that the change requeues, without the `holders` of devices."""
    seq = sidecar.service.requeue_events.seq
    await change
    await until(
        lambda: (
            set(sidecar.service.requeue_events.since(seq).pods) - holders
            and not sidecar.service.pods.waiting.is_checking
        )
    )
    return set(sidecar.service.requeue_events.since(seq).pods) - holders


async def test_a_waiting_pod_is_requeued_if_its_fit_check_raises(monkeypatch):
    cluster = loaded(*fleet(1, 1), claim("a"), claim("two"), pod("p", "a"), pod("q", "two"))
    async with running(cluster) as sidecar:
        await sidecar.place("p")
        await sidecar.prefilter("q")
        monkeypatch.setattr(Decider, "count_fitting", lambda *_: 1 / 0)
        assert await requeued_by(sidecar, sidecar.free_claim("a"), {"default/p"}) == {"default/q"}


async def test_new_devices_requeue_an_unservable_pod_but_heartbeats_do_not():
    cluster = loaded(*fleet(1, 1), claim("two", 2), pod("p", "two"))
    async with running(cluster) as sidecar:
        assert (await sidecar.prefilter("p"))["verdict"] == "never"
        last_seq = sidecar.service.requeue_events.seq
        poll = asyncio.create_task(sidecar.plugin("wake", after=last_seq))
        heartbeat = Merge({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}})  # fmt: skip
        stock = sidecar.service.knowledge.stock
        patched_node = await cluster.patch(resources.NODES, "n0", heartbeat, subresource="status")
        version = int(patched_node.metadata.resource_version)
        [nodes] = [informer for informer in sidecar.service.knowledge._others if informer.resource is resources.NODES]
        await until(lambda: int(nodes.version) >= version)
        assert sidecar.service.requeue_events.seq == last_seq
        assert sidecar.service.knowledge.stock is stock
        await cluster.create(resources.NODES, node("n1"))
        await cluster.create(resources.RESOURCE_SLICES, gpus("n1", 2))
        assert (await poll)[1]["pods"] == ["default/p"]


async def test_a_missing_claim_or_class_requeues_pods_when_created():
    cluster = loaded(*fleet(), claim("existing", class_name="late"), pod("p", "later"), pod("q", "existing"))
    async with running(cluster, tick=3600.0) as sidecar:  # no tick wakes the pods
        for name, missing_object in (("p", claim("later")), ("q", device_class("late"))):
            await sidecar.prefilter(name)
            poll = asyncio.create_task(sidecar.plugin("wake", after=sidecar.service.requeue_events.seq))
            kind = resources.RESOURCE_CLAIMS if missing_object["kind"] == "ResourceClaim" else resources.DEVICE_CLASSES
            await cluster.create(kind, missing_object, "default" if kind.namespaced else None)
            assert (await poll)[1]["pods"] == [f"default/{name}"]
