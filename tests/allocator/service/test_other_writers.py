"""Allocations of other schedulers and of deleted pods, on the embedded store: which claim keeps the device, and what is reported."""

import asyncio
import contextlib

from cluster import resources
from cluster.embedded import Embedded
from cluster.patch import Merge
from tests.allocator.service.sidecar import (
    claim,
    fleet,
    loaded,
    pod,
    running,
    until,
    until_deallocated,
    until_event,
)
from tests.limits import PATIENCE
from tests.objects import allocated, result


async def test_an_unbound_pods_allocation_yields_to_that_of_another_scheduler():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a"))
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        (device,) = await sidecar.allocated_devices("a")
        status = Merge({"status": allocated(result(device.partition("/")[2], pool="n0"), pods=["theirs"])})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await until_deallocated(sidecar, "a")
        assert await sidecar.allocated_devices("theirs") == [device]
        assert (await sidecar.prefilter("p"))["verdict"] == "full"
        await until(lambda: sidecar.service.periodic_checks.overlapping == ())
        await until_event(cluster, "another claim holds the same devices")


class StoreWithAllocationHook(Embedded):
    """A store that runs a hook once, just before it stores an allocation, and whose watches of claims a test can pause."""

    def __init__(self):
        super().__init__()
        self.before_allocation = None
        self.watch_is_open = asyncio.Event()
        self.watch_is_open.set()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        async with super().watch(resource, *args, **options) as changes:
            yield self.delayed(changes) if resource.kind == "ResourceClaim" else changes

    async def delayed(self, changes):
        async for change in changes:
            await self.watch_is_open.wait()
            yield change

    async def patch(self, resource, name, patch, namespace=None, **options):
        hook, body = self.before_allocation, getattr(patch, "body", {})
        if hook is not None and (body.get("status") or {}).get("allocation"):
            self.before_allocation = None
            await hook()
        return await super().patch(resource, name, patch, namespace, **options)


async def test_a_commit_after_another_schedulers_allocation_gets_a_conflict():
    """The commit fails before the periodic check for overlaps runs, so the pod is never bound."""
    cluster = loaded(*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a"), cluster=StoreWithAllocationHook())

    async def allocate_for_another_scheduler():
        cluster.watch_is_open.clear()
        status = Merge({"status": allocated(result("gpu-0", pool="n0"), pods=["theirs"])})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")

    async with running(cluster, tick=3600.0) as sidecar:
        cluster.before_allocation = allocate_for_another_scheduler
        placing = asyncio.create_task(sidecar.place("p"))
        await until(lambda: sidecar.reservation("p") and sidecar.reservation("p").state == "reserved")
        await asyncio.wait_for(sidecar.plugin("state"), PATIENCE)
        assert not placing.done()
        cluster.watch_is_open.set()
        status, answer = await placing
        assert (status, answer["remedy"]) == (409, "schedule the pod again")
        await until_deallocated(sidecar, "a")
        assert await sidecar.allocated_devices("theirs") == ["n0/gpu-0"]


async def test_claims_on_the_same_device_are_reported_as_drift():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("theirs"), pod("p", "a"), pod("theirs", "theirs", nodeName="n0"))
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        await cluster.bind("p", "default", "n0", uid="pod-p")
        await until(lambda: sidecar.reservation("p").state == "bound")
        (device,) = await sidecar.allocated_devices("a")
        status = Merge({"status": allocated(result(device.partition("/")[2], pool="n0"), pods=["theirs"])})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await until(lambda: sidecar.service.periodic_checks.overlapping)
        _, drift = await sidecar.ask("/api/v1/drift")
        assert drift == {
            "overlapping": ["default/a", "default/theirs"],
            "leftBehind": [],
            "withoutDevices": [],
            "leading": True,
        }
        assert await sidecar.allocated_devices("a") == await sidecar.allocated_devices("theirs") == [device]


async def test_a_bug_in_periodic_checks_does_not_end_the_leadership(caplog):
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        sidecar.service.periodic_checks._check_overlaps = lambda _: 1 // 0
        await until(lambda: "a bug while checking for overlaps" in caplog.text)
        del sidecar.service.periodic_checks._check_overlaps
        assert (await sidecar.place("p"))[0] == 200


async def test_a_sweep_frees_the_allocation_of_a_deleted_pod():
    """A sweep is a periodic search for allocations that were left behind."""
    finalizers = ["resource.kubernetes.io/delete-protection"]
    cluster = loaded(
        *fleet(1, 1), claim("left", finalizers=finalizers, status=allocated(result("gpu-0", pool="n0"), pods=["gone"]))
    )
    async with running(cluster, sweep=0.1) as sidecar:
        await until_deallocated(sidecar, "left")
