"""Commits wait for devices with binding conditions (KEP-5007), and free failed or late devices; asked over the allocator's sockets."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from allocator.reservations import ReservationState
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, fleet, loaded, pod, running, until, until_deallocated

DEVICE_CONDITIONS = {"bindsToNode": True, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


def attachable(*objects, nodes=2, each=1):
    """Return a cluster whose devices have binding conditions, with some objects."""
    objects_of_fleet = fleet(nodes, each)
    for obj in objects_of_fleet:
        if obj["kind"] == "ResourceSlice":
            for device in obj["spec"]["devices"]:
                device.update(DEVICE_CONDITIONS)
    return loaded(*objects_of_fleet, *objects)


async def set_conditions(cluster, name, **conditions):
    """Write conditions of each device of a claim, as its driver does."""
    stored = await cluster.get(resources.RESOURCE_CLAIMS, name, "default")
    written = [
        {"type": type_, "status": status, "reason": "Said", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_, status in conditions.items()
    ]
    devices = [
        {"driver": DRIVER, "pool": result.pool, "device": result.device, "conditions": written}
        for result in stored.status.allocation.devices.results
    ]
    await cluster.patch(
        resources.RESOURCE_CLAIMS, name, Merge({"status": {"devices": devices}}), "default", subresource="status"
    )


async def start_commit(sidecar, name):
    """Start to commit a pod; return the task once the claims are written and the commit waits for devices."""
    commit = asyncio.create_task(sidecar.place(name))
    uid = f"pod-{name}"
    await until(lambda: uid in sidecar.service.ledger.state.reservations and sidecar.service.ledger.state.reservations[uid].state is ReservationState.RESERVED)  # fmt: skip
    return commit


async def test_a_commit_waits_until_the_devices_are_ready():
    async with running(attachable(claim("a"), pod("p", "a"))) as sidecar:
        commit = await start_commit(sidecar, "p")
        await set_conditions(sidecar.cluster, "a", Attached="True")
        assert await commit == (200, {"committed": True, "message": ""})
        assert sidecar.service.ledger.state.reservations["pod-p"].state is ReservationState.BINDING


async def test_a_reservation_reports_whether_its_devices_are_unready():
    """The scheduler calls PreBind only for unready devices, and writes nominatedNodeName before it."""
    for cluster, unready in (
        (attachable(claim("a"), pod("p", "a")), True),
        (loaded(*fleet(2, 2), claim("a"), pod("p", "a")), False),
    ):
        async with running(cluster) as sidecar:
            _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
            question = {"token": answer["token"], "node": "n0"}
            for _ in range(2):  # the second answer is about the existing reservation
                assert (await sidecar.plugin("reserve", question))[1]["unready"] is unready


async def test_a_failed_device_is_freed_and_the_pod_decided_again():
    """The scheduler has not got "committed", so no binding can be under way and the devices are freed at once."""
    async with running(attachable(claim("a"), pod("p", "a"))) as sidecar:
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


async def test_devices_that_are_not_ready_in_time_are_taken_back():
    async with running(attachable(claim("a"), pod("p", "a")), binding=0.2) as sidecar:
        status, body = await sidecar.place("p")
        assert (status, body["remedy"]) == (409, "schedule the pod again")
        assert "waits for device gpu-0 of gpu.example.com to report Attached, for more than 0.2 s" in body["error"]
        await until_deallocated(sidecar, "a")


async def test_unreserve_during_a_commit_frees_the_devices_at_once():
    async with running(attachable(claim("a"), pod("p", "a"))) as sidecar:
        commit = await start_commit(sidecar, "p")
        await sidecar.plugin("unreserve", {"reservation": sidecar.service.ledger.state.reservations["pod-p"].token})
        assert (await commit)[0] == 409
        await until_deallocated(sidecar, "a")


@pytest.mark.parametrize("loss", ["deallocated", "deleted"])
async def test_a_commit_fails_when_its_claim_loses_the_allocation(loss):
    cluster = attachable(claim("a"), pod("p", "a"))
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
    cluster = attachable(claim("a"), pod("p", "a"))
    async with running(cluster, identity="one") as sidecar:
        commit = await start_commit(sidecar, "p")
        await set_conditions(cluster, "a", Failed="True")
        await commit
        await until_deallocated(sidecar, "a")
        commit = await start_commit(sidecar, "p")
        await set_conditions(cluster, "a", Attached="True")
        await commit
        await set_conditions(cluster, "a", Attached="True", Failed="True")
    async with running(cluster, identity="one") as two:  # the same identity, so that it leads at once
        await until(lambda: two.service.ledger.state.reservations["pod-p"].state is ReservationState.BINDING)
        before = two.service.ledger.state.reservations["pod-p"].until
        _, answer = await two.plugin("prefilter", {"pod": await two.pod("p")})
        assert (answer["verdict"], "reports Failed" in answer["message"]) == ("waiting", True)
        assert two.service.ledger.state.reservations["pod-p"].until < before
        assert await two.allocated_devices("a")


def allocated(name, node, *, since="2026-01-01T00:00:00Z", consumers=(), **more):
    """Return a claim that another scheduler allocated."""
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"} | more
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "allocationTimestamp": since,
    }
    allocated_claim = claim(name)
    allocated_claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    reserved_for = [{"resource": "pods", "name": consumer, "uid": f"pod-{consumer}"} for consumer in consumers]
    return allocated_claim | {"status": {"allocation": allocation, "reservedFor": reserved_for}}


RESULT_CONDITIONS = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


async def test_an_allocation_with_late_devices_is_removed_unless_other_pods_share_it():
    mine = allocated("a", "n0", **RESULT_CONDITIONS)
    shared = allocated("b", "n1", consumers=["x"], **RESULT_CONDITIONS)
    async with running(attachable(mine, shared, pod("p", "a"), pod("q", "b"), pod("x", "b", nodeName="n1"))) as sidecar:
        for name in "pq":
            _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
            assert (answer["verdict"], "for more than 600 s" in answer["message"]) == ("waiting", True)
        await until_deallocated(sidecar, "a")
        _, started = await sidecar.plugin("wake", after=0)
        await set_conditions(sidecar.cluster, "b", Attached="True")
        _, news = await sidecar.plugin("wake", after=started["seq"])
        assert news["pods"] == ["default/q"]
        assert (await sidecar.place("q"))[0] == 200
        assert len((await sidecar.claim("b")).status.reserved_for) == 2


async def test_a_young_allocation_is_waited_for_until_its_deadline():
    recently = (datetime.now(UTC) - timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    mine = allocated("a", "n0", since=recently, **RESULT_CONDITIONS)
    async with running(attachable(mine, pod("p", "a")), binding=7) as sidecar:
        async with asyncio.timeout(60):
            assert (await sidecar.place("p"))[0] == 409
        await until_deallocated(sidecar, "a")


@pytest.mark.parametrize("consumers", [(), ("p",), ("x",)])
async def test_an_allocation_on_an_unusable_node_is_removed(consumers):
    """As if the node was cordoned: the call of postfilter names the nodes that all other plugins accept."""
    others = [pod("x", "a", nodeName="n0")] if "x" in consumers else []
    cluster = attachable(allocated("a", "n0", consumers=consumers), pod("p", "a"), *others)
    async with running(cluster) as sidecar:
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert [node["name"] for node in answer["nodes"]] == ["n0"]
        _, answer = await sidecar.plugin("postfilter", {"pod": await sidecar.pod("p"), "nodes": []})
        assert "allocated" not in answer["message"]
        _, answer = await sidecar.plugin("postfilter", {"pod": await sidecar.pod("p"), "nodes": ["n1"]})
        if not consumers:
            assert answer["message"] == "claim default/a is allocated on a node where the pod cannot run"
            await until_deallocated(sidecar, "a")
        elif consumers == ("p",):
            assert answer["message"] == "claim default/a is allocated on a node where the pod cannot run"
            reservation = sidecar.service.ledger.state.reservations["pod-p"]
            assert reservation.until <= asyncio.get_running_loop().time() + sidecar.service.ledger.state.terms.grace
        else:
            assert "cannot run" not in answer["message"]
            assert await sidecar.allocated_devices("a")


async def test_an_extender_filter_removes_an_allocation_on_an_unusable_node():
    async with running(attachable(allocated("a", "n0"), pod("p", "a"))) as sidecar:
        question = {"Pod": await sidecar.pod("p"), "NodeNames": ["n1"]}
        _, answer = await sidecar.ask("/extender/filter", question)
        assert answer["FailedAndUnresolvableNodes"].keys() == {"n1"}
        assert answer["FailedAndUnresolvableNodes"]["n1"].startswith("node(s) excluded: claim default/a is allocated")
        await until_deallocated(sidecar, "a")
        _, answer = await sidecar.ask("/extender/filter", question | {"NodeNames": ["n0", "n1"]})
        assert answer["NodeNames"] == ["n0", "n1"]


async def test_pods_that_share_late_devices_are_both_decided_again():
    async with running(attachable(claim("a"), pod("p", "a"), pod("q", "a")), binding=3) as sidecar:
        _, started = await sidecar.plugin("wake", after=0)
        commits = [await start_commit(sidecar, name) for name in "pq"]
        assert [(await commit)[0] for commit in commits] == [409, 409]
        await until_deallocated(sidecar, "a")
        await until(lambda: not sidecar.service.ledger.state.reservations)
        woken = set()
        while woken != {"default/p", "default/q"}:
            _, news = await sidecar.plugin("wake", after=started["seq"])
            woken |= set(news["pods"])
        commits = [await start_commit(sidecar, name) for name in "pq"]
        await set_conditions(sidecar.cluster, "a", Attached="True")
        assert [(await commit)[0] for commit in commits] == [200, 200]
