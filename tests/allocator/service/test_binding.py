"""Devices that have to be made ready before a pod is bound to them (KEP-5007), over the allocator's own sockets: what is waited for, and taken back."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from allocator.reservations import ReservationState
from cluster import resources
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, fleet, loaded, pod, running, until

CONDITIONS = {"bindsToNode": True, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


def attachable(*objects, nodes=2, each=1):
    """A fleet whose devices say when they are attached, and some objects."""
    made = fleet(nodes, each)
    for one in made:
        if one["kind"] == "ResourceSlice":
            for device in one["spec"]["devices"]:
                device.update(CONDITIONS)
    return loaded(*made, *objects)


async def say(cluster, name, **conditions):
    """Have the driver say something of each device of a claim."""
    found = await cluster.get(resources.RESOURCE_CLAIMS, name, "default")
    said = [
        {"type": type_, "status": status, "reason": "Said", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for type_, status in conditions.items()
    ]
    devices = [
        {"driver": DRIVER, "pool": result.pool, "device": result.device, "conditions": said}
        for result in found.status.allocation.devices.results
    ]
    await cluster.patch(
        resources.RESOURCE_CLAIMS, name, Merge({"status": {"devices": devices}}), "default", subresource="status"
    )


async def reserved(one, name):
    """A commit of a pod under way whose claims are written and whose devices are awaited."""
    commit = asyncio.create_task(one.place(name))
    uid = f"pod-{name}"
    await until(lambda: uid in one.bridge.ledger.state.reservations and one.bridge.ledger.state.reservations[uid].state is ReservationState.RESERVED)  # fmt: skip
    return commit


async def is_free(one, name):
    """Wait until a claim has nothing."""
    while await one.held(name):  # noqa: ASYNC110  what is waited for has no event of its own
        await asyncio.sleep(0.005)


async def test_a_pod_is_bound_when_its_devices_are_ready_and_not_before():
    async with running(attachable(claim("a"), pod("p", "a"))) as one:
        commit = await reserved(one, "p")
        await say(one.cluster, "a", Attached="True")
        assert await commit == (200, {"committed": True, "message": ""})
        assert one.bridge.ledger.state.reservations["pod-p"].state is ReservationState.BINDING


async def test_a_reservation_says_whether_its_devices_have_to_be_made_ready():
    """Then the scheduler announces the node before it binds the pod, which is a write."""
    for cluster, unready in (
        (attachable(claim("a"), pod("p", "a")), True),
        (loaded(*fleet(2, 2), claim("a"), pod("p", "a")), False),
    ):
        async with running(cluster) as one:
            _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
            question = {"token": found["token"], "node": "n0"}
            for _ in range(2):  # the second answer is about what is held already
                assert (await one.plugin("reserve", question))[1]["unready"] is unready


async def test_a_device_that_fails_is_taken_back_and_the_pod_decided_again():
    """It was never said that the pod may be bound, so nothing is waited for."""
    async with running(attachable(claim("a"), pod("p", "a"))) as one:
        commit = await reserved(one, "p")
        await say(one.cluster, "a", Failed="True")
        status, said = await commit
        assert (status, said["remedy"]) == (409, "decide again")
        assert "says Failed" in said["error"]
        await is_free(one, "a")
        assert (await one.claim("a")).status.devices == ()
        commit = await reserved(one, "p")
        await say(one.cluster, "a", Attached="True")
        assert (await commit)[0] == 200


async def test_devices_that_are_not_ready_in_time_are_taken_back():
    async with running(attachable(claim("a"), pod("p", "a")), binding=0.2) as one:
        status, said = await one.place("p")
        assert (status, said["remedy"]) == (409, "decide again")
        assert "waits for device gpu-0 of gpu.example.com to say Attached, for more than 0.2 s" in said["error"]
        await is_free(one, "a")


async def test_a_scheduler_that_waits_no_longer_has_its_devices_taken_back_at_once():
    async with running(attachable(claim("a"), pod("p", "a"))) as one:
        commit = await reserved(one, "p")
        await one.plugin("unreserve", {"reservation": one.bridge.ledger.state.reservations["pod-p"].token})
        assert (await commit)[0] == 409
        await is_free(one, "a")


@pytest.mark.parametrize("gone", ["deallocated", "deleted"])
async def test_a_pod_whose_claim_loses_its_allocation_while_devices_are_awaited_is_not_bound(gone):
    cluster = attachable(claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        commit = await reserved(one, "p")
        if gone == "deallocated":
            nothing = dict.fromkeys(("allocation", "reservedFor", "devices"))
            await cluster.patch(resources.RESOURCE_CLAIMS, "a", Merge({"status": nothing}), "default", subresource="status")  # fmt: skip
        else:
            await cluster.patch(resources.RESOURCE_CLAIMS, "a", Merge({"metadata": {"finalizers": None}}), "default")
            await cluster.delete(resources.RESOURCE_CLAIMS, "a", "default")
        assert (await commit)[0] == 409


async def test_a_new_leader_shortens_but_keeps_a_reservation_on_failed_devices():
    """The last leader may have let the pod be bound, so the new one waits a while and reads the pod again."""
    cluster = attachable(claim("a"), pod("p", "a"))
    async with running(cluster, identity="one") as one:
        commit = await reserved(one, "p")
        await say(cluster, "a", Failed="True")
        await commit
        await is_free(one, "a")
        commit = await reserved(one, "p")
        await say(cluster, "a", Attached="True")
        await commit
        await say(cluster, "a", Attached="True", Failed="True")
    async with running(cluster, identity="one") as two:
        await until(lambda: two.bridge.ledger.state.reservations["pod-p"].state is ReservationState.BINDING)
        before = two.bridge.ledger.state.reservations["pod-p"].until
        _, said = await two.plugin("prefilter", {"pod": await two.pod("p")})
        assert (said["verdict"], "says Failed" in said["message"]) == ("waiting", True)
        assert two.bridge.ledger.state.reservations["pod-p"].until < before
        assert await two.held("a")


def allocated(name, node, *, since="2026-01-01T00:00:00Z", consumers=(), **more):
    """A claim that another scheduler allocated."""
    result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"} | more
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
        "allocationTimestamp": since,
    }
    made = claim(name)
    made["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    reserved_for = [{"resource": "pods", "name": consumer, "uid": f"pod-{consumer}"} for consumer in consumers]
    return made | {"status": {"allocation": allocation, "reservedFor": reserved_for}}


CONDITIONED = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}


async def test_an_old_allocation_that_never_got_ready_is_taken_back_for_one_pod_and_left_to_those_that_share_it():
    mine = allocated("a", "n0", **CONDITIONED)
    shared = allocated("b", "n1", consumers=["x"], **CONDITIONED)
    async with running(attachable(mine, shared, pod("p", "a"), pod("q", "b"), pod("x", "b", nodeName="n1"))) as one:
        for name in "pq":
            _, said = await one.plugin("prefilter", {"pod": await one.pod(name)})
            assert (said["verdict"], "for more than 600 s" in said["message"]) == ("waiting", True)
        await is_free(one, "a")
        _, begun = await one.plugin("wake", after=0)
        await say(one.cluster, "b", Attached="True")
        _, news = await one.plugin("wake", after=begun["seq"])
        assert news["pods"] == ["default/q"]
        assert (await one.place("q"))[0] == 200
        assert len((await one.claim("b")).status.reserved_for) == 2


async def test_one_that_is_young_is_waited_for_as_long_as_is_left():
    long_ago = (datetime.now(UTC) - timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    mine = allocated("a", "n0", since=long_ago, **CONDITIONED)
    async with running(attachable(mine, pod("p", "a")), binding=7) as one:
        async with asyncio.timeout(60):
            assert (await one.place("p"))[0] == 409
        await is_free(one, "a")


@pytest.mark.parametrize("consumers", [(), ("p",), ("x",)])
async def test_an_allocation_on_a_node_that_does_not_take_the_pod_is_taken_back_if_others_would(consumers):
    """Its node was cordoned: the scheduler names those that everything but devices accepts."""
    others = [pod("x", "a", nodeName="n0")] if "x" in consumers else []
    cluster = attachable(allocated("a", "n0", consumers=consumers), pod("p", "a"), *others)
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert [node["name"] for node in found["nodes"]] == ["n0"]
        _, said = await one.plugin("postfilter", {"pod": await one.pod("p"), "nodes": []})
        assert "allocated" not in said["message"]
        _, said = await one.plugin("postfilter", {"pod": await one.pod("p"), "nodes": ["n1"]})
        if not consumers:
            assert said["message"] == "claim default/a is allocated where the pod cannot go"
            await is_free(one, "a")
        elif consumers == ("p",):
            assert said["message"] == "claim default/a is allocated where the pod cannot go"
            reservation = one.bridge.ledger.state.reservations["pod-p"]
            assert reservation.until <= asyncio.get_running_loop().time() + one.bridge.ledger.state.terms.grace
        else:
            assert "cannot go" not in said["message"]
            assert await one.held("a")


async def test_a_stock_scheduler_has_it_taken_back_by_naming_the_nodes_that_would_do():
    async with running(attachable(allocated("a", "n0"), pod("p", "a"))) as one:
        question = {"Pod": await one.pod("p"), "NodeNames": ["n1"]}
        _, said = await one.ask("/extender/filter", question)
        assert said["FailedAndUnresolvableNodes"] == {"n1": "claim default/a is allocated where the pod cannot go"}
        await is_free(one, "a")
        _, said = await one.ask("/extender/filter", question | {"NodeNames": ["n0", "n1"]})
        assert said["NodeNames"] == ["n0", "n1"]


async def test_pods_that_share_devices_which_are_late_are_both_decided_again():
    async with running(attachable(claim("a"), pod("p", "a"), pod("q", "a")), binding=3) as one:
        _, begun = await one.plugin("wake", after=0)
        commits = [await reserved(one, name) for name in "pq"]
        assert [(await commit)[0] for commit in commits] == [409, 409]
        await is_free(one, "a")
        await until(lambda: not one.bridge.ledger.state.reservations)
        woken = set()
        while woken != {"default/p", "default/q"}:
            _, news = await one.plugin("wake", after=begun["seq"])
            woken |= set(news["pods"])
        commits = [await reserved(one, name) for name in "pq"]
        await say(one.cluster, "a", Attached="True")
        assert [(await commit)[0] for commit in commits] == [200, 200]
