"""Commits wait for devices with binding conditions (KEP-5007), and free failed or late devices."""

import asyncio

import pytest

from allocator.reservations import ReservationState
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.preemptors import postfilter
from tests.allocator.service.sidecar import DRIVER, claim, fleet, loaded, pod, running, until, until_deallocated
from tests.objects import allocated, result

DEVICE_CONDITIONS = {"bindsToNode": True, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


def cluster_with_binding_conditions(*objects, nodes=2, per_node=1):
    """Return a cluster with these objects and a fleet whose devices have binding conditions."""
    objects_of_fleet = fleet(nodes, per_node)
    for obj in objects_of_fleet:
        if obj["kind"] == "ResourceSlice":
            for device in obj["spec"]["devices"]:
                device.update(DEVICE_CONDITIONS)
    return loaded(*objects_of_fleet, *objects)


async def set_conditions(cluster, name, **conditions):
    """Write conditions of each device of a claim, as the device's driver does."""
    stored = await cluster.get(resources.RESOURCE_CLAIMS, name, "default")
    device_conditions = [
        {"type": type_, "status": status, "reason": "Said", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_, status in conditions.items()
    ]
    devices = [
        {"driver": DRIVER, "pool": result.pool, "device": result.device, "conditions": device_conditions}
        for result in stored.status.allocation.devices.results
    ]
    await cluster.patch(
        resources.RESOURCE_CLAIMS, name, Merge({"status": {"devices": devices}}), "default", subresource="status"
    )


async def start_commit(sidecar, name):
    """Start to commit a pod; return the task once the claims are written and the commit waits for devices."""
    commit = asyncio.create_task(sidecar.place(name))
    await until(lambda: sidecar.reservation(name) and sidecar.reservation(name).state is ReservationState.RESERVED)
    return commit


async def test_a_commit_waits_until_the_devices_are_ready():
    async with running(cluster_with_binding_conditions(claim("a"), pod("p", "a"))) as sidecar:
        commit = await start_commit(sidecar, "p")
        await set_conditions(sidecar.cluster, "a", Attached="True")
        assert await commit == (200, {"committed": True, "message": ""})
        assert sidecar.reservation("p").state is ReservationState.BINDING


async def test_a_reservation_reports_whether_its_devices_are_unready():
    """If the devices are ready, the scheduler skips PreBind and need not write nominatedNodeName before it."""
    for cluster, unready in (
        (cluster_with_binding_conditions(claim("a"), pod("p", "a")), True),
        (loaded(*fleet(2, 2), claim("a"), pod("p", "a")), False),
    ):
        async with running(cluster) as sidecar:
            question = {"token": (await sidecar.prefilter("p"))["token"], "node": "n0"}
            for _ in range(2):  # the second answer is about the existing reservation
                assert (await sidecar.plugin("reserve", question))[1]["unready"] is unready


async def test_a_failed_device_is_freed_and_its_pod_placed_again():
    """The scheduler has not received "committed", so it cannot be binding the pod, and the devices are freed at once."""
    async with running(cluster_with_binding_conditions(claim("a"), pod("p", "a"))) as sidecar:
        commit = await start_commit(sidecar, "p")
        await set_conditions(sidecar.cluster, "a", Failed="True")
        status, body = await commit
        assert (status, body["remedy"]) == (409, "schedule the pod again")
        assert "reports Failed" in body["error"]
        await until_deallocated(sidecar, "a")
        assert (await sidecar.claim("a")).status.devices == ()
        commit = await start_commit(sidecar, "p")
        await set_conditions(sidecar.cluster, "a", Attached="True")
        assert (await commit)[0] == 200


async def test_devices_that_are_not_ready_in_time_are_freed():
    """The time of an allocation has whole seconds, so the commit waits for half a second or longer."""
    async with running(cluster_with_binding_conditions(claim("a"), pod("p", "a")), binding=1.5) as sidecar:
        status, body = await sidecar.place("p")
        assert (status, body["remedy"]) == (409, "schedule the pod again")
        assert "waits for device gpu-0 of gpu.example.com to report Attached, for more than 1.5 s" in body["error"]
        await until_deallocated(sidecar, "a")


async def test_unreserve_during_a_commit_frees_the_devices_at_once():
    async with running(cluster_with_binding_conditions(claim("a"), pod("p", "a"))) as sidecar:
        commit = await start_commit(sidecar, "p")
        await sidecar.plugin("unreserve", {"reservation": sidecar.reservation("p").token})
        assert (await commit)[0] == 409
        await until_deallocated(sidecar, "a")


@pytest.mark.parametrize("loss", ["deallocated", "deleted"])
async def test_a_commit_fails_when_its_claim_loses_the_allocation(loss):
    cluster = cluster_with_binding_conditions(claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        commit = await start_commit(sidecar, "p")
        if loss == "deallocated":
            no_status = dict.fromkeys(("allocation", "reservedFor", "devices"))
            await cluster.patch(resources.RESOURCE_CLAIMS, "a", Merge({"status": no_status}), "default", subresource="status")  # fmt: skip
        else:
            await cluster.patch(resources.RESOURCE_CLAIMS, "a", Merge({"metadata": {"finalizers": None}}), "default")
            await cluster.delete(resources.RESOURCE_CLAIMS, "a", "default")
        assert (await commit)[0] == 409


async def test_a_new_leader_shortens_a_reservation_on_failed_devices():
    """The pod may be bound already, so the new leader waits a while and reads the pod before it frees the devices."""
    cluster = cluster_with_binding_conditions(claim("a"), pod("p", "a"))
    async with running(cluster, identity="one") as sidecar:
        commit = await start_commit(sidecar, "p")
        await set_conditions(cluster, "a", Failed="True")
        await commit
        await until_deallocated(sidecar, "a")
        commit = await start_commit(sidecar, "p")
        await set_conditions(cluster, "a", Attached="True")
        await commit
        await set_conditions(cluster, "a", Attached="True", Failed="True")
    async with running(cluster, identity="one") as new_leader:  # the same identity, so that it leads at once
        await until(lambda: new_leader.service.ledger.state.reservations["pod-p"].state is ReservationState.BINDING)
        earlier_end = new_leader.service.ledger.state.reservations["pod-p"].until
        answer = await new_leader.prefilter("p")
        assert (answer["verdict"], "reports Failed" in answer["message"]) == ("waiting", True)
        assert new_leader.service.ledger.state.reservations["pod-p"].until < earlier_end
        assert await new_leader.allocated_devices("a")


def claim_of_another_scheduler(name, node, *, allocated_at="2026-01-01T00:00:00Z", consumers=(), **result_fields):
    """Return a claim that another scheduler allocated."""
    status = allocated(result("gpu-0", pool=node, **result_fields), pods=consumers, node=node)
    status["allocation"]["allocationTimestamp"] = allocated_at
    return claim(name, finalizers=["resource.kubernetes.io/delete-protection"], status=status)


RESULT_CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


async def test_an_unshared_allocation_with_late_devices_is_removed():
    unshared = claim_of_another_scheduler("a", "n0", **RESULT_CONDITIONS)
    shared = claim_of_another_scheduler("b", "n1", consumers=["x"], **RESULT_CONDITIONS)
    pods = [pod("p", "a"), pod("q", "b"), pod("x", "b", nodeName="n1")]
    async with running(cluster_with_binding_conditions(unshared, shared, *pods)) as sidecar:
        for name in "pq":
            answer = await sidecar.prefilter(name)
            assert (answer["verdict"], "for more than 600 s" in answer["message"]) == ("waiting", True)
        await until_deallocated(sidecar, "a")
        _, first_wake = await sidecar.plugin("wake", after=0)
        await set_conditions(sidecar.cluster, "b", Attached="True")
        _, next_wake = await sidecar.plugin("wake", after=first_wake["seq"])
        assert next_wake["pods"] == ["default/q"]
        assert (await sidecar.place("q"))[0] == 200
        assert len((await sidecar.claim("b")).status.reserved_for) == 2


@pytest.mark.parametrize("consumers", [(), ("p",), ("x",)], ids=["no pod", "the same pod", "another pod"])
async def test_only_unshared_allocations_on_unusable_nodes_are_given_up(consumers):
    """The node of the allocation is unusable, for example cordoned: postfilter gets only the nodes that all other plugins accept."""
    other_pods = [pod("x", "a", nodeName="n0")] if "x" in consumers else []
    cluster = cluster_with_binding_conditions(
        claim_of_another_scheduler("a", "n0", consumers=consumers), pod("p", "a"), *other_pods
    )
    async with running(cluster) as sidecar:
        assert [node["name"] for node in (await sidecar.prefilter("p"))["nodes"]] == ["n0"]
        assert "allocated" not in (await postfilter(sidecar, "p"))[1]["message"]
        _, answer = await postfilter(sidecar, "p", "n1")
        assert ("where the pod cannot run" in answer["message"]) is ("x" not in consumers)
        if not consumers:
            await until_deallocated(sidecar, "a")
        elif consumers == ("p",):
            end = sidecar.reservation("p").until
            assert end <= asyncio.get_running_loop().time() + sidecar.service.ledger.state.terms.grace
        else:
            assert await sidecar.allocated_devices("a")
