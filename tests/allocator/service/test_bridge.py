"""The allocator's service over the embedded store, asked over its own sockets: what is reserved, written, and given back."""

import asyncio
import contextlib
import math
import random
import re
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
from prometheus_client import generate_latest

from allocator.decisions import Decider
from allocator.service import commits
from allocator.service.commits import FENCE
from allocator.service.metrics import Metrics
from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized, Unavailable
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, device_class, fleet, gpus, loaded, node, pod, running, until
from tests.limits import PATIENCE
from tests.objects import container
from webhook.claims import taint_rule


class Faulty(Embedded):
    """A store that fails at chosen writes into claims. `faults` has for the number of a write the error, before it or after."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.last = None  # the number of the write after which none is heard any more
        self.ignored = 0
        self.heard = asyncio.Event()  # what was ignored is heard after all
        self.faults = {}
        self.after = {}

    async def patch(self, resource, name, patch, namespace=None, **more):
        if resource.kind != "ResourceClaim" or more.get("dry_run"):
            return await super().patch(resource, name, patch, namespace, **more)
        if len(self.writes) == self.last:
            self.ignored += 1
            await self.heard.wait()
        self.writes.append((name, more.get("subresource", "")))
        number = len(self.writes)
        if number in self.faults:
            raise self.faults.pop(number)
        written = await super().patch(resource, name, patch, namespace, **more)
        if number in self.after:
            raise self.after.pop(number)
        return written


def faulty(*objects):
    cluster = Faulty()
    cluster.load(list(objects))
    return cluster


LACKING = (
    Forbidden('resourceclaims.resource.k8s.io "a" is forbidden: User "system:serviceaccount:x:y" cannot patch resource "resourceclaims" in API group'),
    Invalid('ResourceClaim.resource.k8s.io "a" is invalid: status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="patch" permission: no'),
    Unauthorized("Unauthorized"),
)  # fmt: skip


# What is asked and answered


async def test_a_pod_is_reserved_committed_and_its_claims_are_written():
    cluster = loaded(*fleet(), claim("a"), claim("b", 2), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        assert await one.place("p") == (200, {"committed": True, "message": ""})
        assert await one.place("q") == (200, {"committed": True, "message": ""})
        given = [*await one.held("a"), *await one.held("b")]
        assert len(set(given)) == 3
        written = await one.claim("a")
        assert written.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
        assert written.status.allocation.allocation_timestamp
        assert [consumer.uid for consumer in written.status.reserved_for] == ["pod-p"]


async def test_reserved_devices_are_not_given_to_another_pod_until_released():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        asked = {name: (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1] for name in ("p", "q")}
        assert asked["p"]["verdict"] == asked["q"]["verdict"] == "fits"
        status, first = await one.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})
        assert (status, await one.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})) == (
            200,
            (200, first),
        )
        status, refused = await one.plugin("reserve", {"token": asked["q"]["token"], "node": "n0"})
        assert (status, refused["remedy"]) == (409, "decide again")
        _, found = await one.plugin("prefilter", {"pod": await one.pod("q")})
        assert (found["verdict"], found["nodes"]) == ("full", [])
        assert found["token"], "preemption asks with it what would be if a pod went"
        assert "in use" in found["message"]
        for _ in range(2):
            assert await one.plugin("unreserve", {"reservation": first["reservation"]}) == (200, {})
        assert (await one.plugin("prefilter", {"pod": await one.pod("q")}))[1]["verdict"] == "fits"
        assert await one.held("a") == []


async def test_a_reservation_in_one_pool_blocks_devices_that_a_node_rule_keeps_apart():
    """Both were told that there is room before either took it."""
    first, second = gpus("n0", 1), gpus("n0", 1)
    second["metadata"]["name"] = second["spec"]["pool"]["name"] = "other"
    spec = {"driver": DRIVER, "compatibleOnlyWith": "false", "scope": "node"}
    kind = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceCompatibility"}
    alone = kind | {"metadata": {"name": "alone"}, "spec": spec}
    pods = (claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster = loaded(device_class(), node("n0"), first, second, alone, *pods)
    async with running(cluster) as one:
        asked = {name: (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1] for name in ("p", "q")}
        assert asked["p"]["verdict"] == asked["q"]["verdict"] == "fits"
        status, held = await one.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})
        assert status == 200
        status, refused = await one.plugin("reserve", {"token": asked["q"]["token"], "node": "n0"})
        assert (status, refused["remedy"]) == (409, "decide again")
        _, found = await one.plugin("prefilter", {"pod": await one.pod("q")})
        assert found["verdict"] == "full"
        assert "DeviceCompatibility/alone keeps it apart from gpu-0 of pool n0 (held by default/a)" in found["message"]
        await one.plugin("unreserve", {"reservation": held["reservation"]})
        assert (await one.place("q"))[0] == 200


async def test_a_second_pod_of_a_claim_goes_where_the_first_one_is():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"), pod("q", "a"))
    async with running(cluster) as one:
        await one.place("p", "n1")
        _, found = await one.plugin("prefilter", {"pod": await one.pod("q")})
        assert [place["name"] for place in found["nodes"]] == ["n1"]
        assert (await one.place("q"))[0] == 200
        assert [consumer.uid for consumer in (await one.claim("a")).status.reserved_for] == ["pod-p", "pod-q"]


async def test_each_verdict_says_what_is_in_the_way():
    big, lost = claim("big", 3), claim("lost", class_name="nowhere")
    cluster = loaded(*fleet(), big, lost, pod("plain"), pod("never", "big"), pod("early", "later"), pod("classless", "lost"))  # fmt: skip
    async with running(cluster) as one:
        said = {name: (await one.plugin("prefilter", {"pod": await one.pod(name)}))[1] for name in ("plain", "never", "early", "classless")}  # fmt: skip
        assert {name: answer["verdict"] for name, answer in said.items()} == {
            "plain": "skip",
            "never": "never",
            "early": "waiting",
            "classless": "waiting",
        }
        assert "claim later" in said["early"]["message"]
        assert "DeviceClass nowhere" in said["classless"]["message"]
        [reason] = said["never"]["reasons"]
        assert (sorted(reason["nodes"]), reason["count"]) == (["n0", "n1"], 2)


SERVED = device_class("served", extendedResourceName="example.com/gpu")


def pod_by_name(name, count=1, **spec):
    """A pod that asks by a name that a class serves."""
    return pod(name, containers=[container("c", {"example.com/gpu": str(count)})], **spec)


MIXED = SERVED, node("n0"), gpus("n0", 1), node("n1", allocatable={"example.com/gpu": "2"})


async def test_each_node_serves_a_name_by_its_device_plugin_or_by_devices():
    async with running(loaded(*MIXED, pod_by_name("p"))) as one:
        verdict, _ = await until_made(one, "p")
        assert verdict == "fits"
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert [place["name"] for place in found["nodes"]] == ["n0"]
        assert "a device plugin serves example.com/gpu there, and a claim replaces it" in found["reasons"][0]["message"]
        assert (await one.place("p", "n0"))[0] == 200


@pytest.mark.parametrize(
    "pinned", [{}, {"nodeSelector": {"to": "n1"}}], ids=["too few devices", "it may not go where they are"]
)
async def test_a_pod_for_which_no_devices_are_free_goes_where_a_device_plugin_has_its_name(pinned):
    count = 1 if pinned else 2
    there = node("n1", allocatable={"example.com/gpu": "2"})
    there["metadata"]["labels"] = {"to": "n1"}
    cluster = loaded(*MIXED[:3], there, pod_by_name("p", count, **pinned))
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert [place["name"] for place in found["nodes"]] == ["n1"]
        assert (await one.place("p", "n1"))[0] == 200
        assert len(one.bridge.ledger.state.reservations) == 0
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def until_made(one, name):
    """Ask about a pod until its claim is made; answer with the verdict, and the claim."""
    async with asyncio.timeout(PATIENCE):
        while True:
            _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
            if found["verdict"] != "waiting":
                status = (await one.pod(name))["status"]["extendedResourceClaimStatus"]
                return found["verdict"], await one.claim(status["resourceClaimName"])
            await asyncio.sleep(0.01)


async def test_a_pod_that_asks_by_a_name_gets_a_claim_that_passes_the_fence_and_holds_its_device():
    cluster = loaded(SERVED, node("n0"), gpus("n0", 1), taint_rule(DRIVER), pod_by_name("p"), pod_by_name("q"))
    async with running(cluster) as one:
        verdict, made = await until_made(one, "p")
        [owner] = made.metadata.owner_references
        assert (verdict, owner.uid, owner.controller) == ("fits", "pod-p", True)
        assert made.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
        assert (await one.pod("p"))["status"]["extendedResourceClaimStatus"]["requestMappings"] == [mapping]
        assert (await one.place("p", "n0"))[0] == 200
        assert len((await one.claim(made.metadata.name)).status.allocation.devices.results) == 1
        assert (await until_made(one, "q"))[0] == "full"


async def test_a_pod_that_its_scheduler_has_heard_of_first_gets_its_claim_all_the_same(monkeypatch):
    """No event would have it tried again: the claim is made at the first question."""
    cluster = loaded(SERVED, node("n0"), gpus("n0", 1), pod_by_name("p"))
    async with running(cluster) as one:
        raw = await one.pod("p")
        monkeypatch.setattr(one.bridge.pods, "by_uid", {})
        assert (await one.plugin("prefilter", {"pod": raw}))[1]["verdict"] == "waiting"
        async with asyncio.timeout(PATIENCE):
            while "extendedResourceClaimStatus" not in (await one.pod("p")).get("status", {}):  # noqa: ASYNC110  what is waited for has no event of its own
                await asyncio.sleep(0.005)


async def test_a_claim_that_was_made_before_a_kill_is_taken_and_one_of_another_owner_is_named_to_the_pod():
    cluster = loaded(SERVED, node("n0"), gpus("n0", 2), pod_by_name("p"), pod_by_name("q"))
    async with running(cluster) as one:
        _, made = await until_made(one, "p")
        await cluster.patch(resources.PODS, "p", Merge({"status": {"extendedResourceClaimStatus": None}}), "default", subresource="status")  # fmt: skip
        _, again = await until_made(one, "p")
        assert again.metadata.uid == made.metadata.uid
        _, found = await one.plugin("prefilter", {"pod": await one.pod("q")})
        [name] = re.findall(r"waiting for claim (\S+) to be created", found["message"])
    cluster = loaded(SERVED, node("n0"), gpus("n0", 2), pod_by_name("q"), claim(name))
    async with running(cluster) as one:
        await one.plugin("prefilter", {"pod": await one.pod("q")})
        said = f"claim {name} cannot be created: claim {name} was created for something else: delete it"
        await told(cluster, said)
        assert "extendedResourceClaimStatus" not in (await one.pod("q")).get("status", {})


async def test_victims_make_room_and_nominated_pods_take_it():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), claim("c"), pod("p", "a"), pod("q", "b"), pod("r", "c"))
    async with running(cluster) as one:
        _, before = await one.plugin("prefilter", {"pod": await one.pod("q")})
        await one.place("p")
        question = {"token": before["token"], "node": "n0"}
        assert (await one.plugin("filter", question))[1]["fits"] is False
        victim, nominated = await one.pod("p"), await one.pod("r")
        assert (await one.plugin("filter", question | {"remove": [victim]}))[1]["fits"] is True
        assert (await one.plugin("filter", question | {"remove": [victim], "add": [nominated]}))[1]["fits"] is False


@pytest.mark.parametrize(
    ("call", "body", "status", "words"),
    [
        ("prefilter", {"pod": 7}, 400, "pod"),
        ("prefilter", {"pod": {}, "nodes": {"count": "many", "sum": 1}}, 400, "/nodes/count"),
        ("prefilter", {"pod": {}, "nodes": {"count": 1}}, 400, "sum"),
        ("reserve", {"token": "unknown", "node": "n0"}, 410, "token"),
        ("commit", {"reservation": "unknown"}, 409, "not known"),
        ("nothing", {}, 404, "not supported here"),
    ],
)
async def test_a_call_that_cannot_be_answered_gets_an_error_and_a_remedy(call, body, status, words):
    async with running(loaded(*fleet())) as one:
        said = await one.plugin(call, body)
        assert (said[0], sorted(said[1])) == (status, ["error", "remedy"])
        assert words in said[1]["error"]
        assert said[1]["remedy"]


async def test_only_a_client_with_the_token_is_answered(tmp_path):

    secret = tmp_path / "token"
    secret.write_text("only-the-scheduler-knows\n")
    async with running(loaded(*fleet()), token_file=str(secret)) as one:
        assert (await one.plugin("state"))[0] == 401
        one.headers = {"Authorization": "Bearer only-the-scheduler-knows"}
        assert (await one.plugin("state"))[1]["leading"] is True


# Waking


async def test_a_waiting_pod_is_notified_when_a_device_is_freed():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as one:
        _, begun = await one.plugin("wake", after=0)
        assert begun["all"] is True
        await one.place("p")
        await one.plugin("prefilter", {"pod": await one.pod("q")})
        seq, told = one.bridge.requeue_events.seq, set()
        poll = asyncio.create_task(one.plugin("wake", after=seq))
        await free(cluster, "a")
        while "default/q" not in told:
            _, news = await poll
            told.update(news["pods"])
            seq = news["seq"]
            poll = asyncio.create_task(one.plugin("wake", after=seq))
        poll.cancel()


async def free(cluster, name):
    empty = Merge({"status": {"allocation": None, "reservedFor": None}})
    await cluster.patch(resources.RESOURCE_CLAIMS, name, empty, "default", subresource="status")


async def test_only_waiting_pods_that_fit_now_are_notified_of_freed_devices():
    """One device is free: every pod that requests one of its class is requeued; a pod of another class or with two devices is not."""
    held = [claim("a"), claim("b"), claim("c", class_name="nic")]
    asked = [claim("p"), claim("q"), claim("r", class_name="nic"), claim("s", 2)]
    nic = gpus("n0", 1)
    nic["metadata"]["name"] = "n0-nic"
    nic["spec"]["driver"] = driver = "nic.example.com"
    nics = device_class("nic", selectors=[{"cel": {"expression": f"device.driver == '{driver}'"}}])
    cluster = loaded(*fleet(1, 2), nic, nics, *held, *asked, *(pod(f"of-{name}", name) for name in "abcpqrs"))  # fmt: skip
    async with running(cluster) as one:
        for name in "abc":
            assert (await one.place(f"of-{name}"))[1]["committed"]
        for name in "pqrs":
            _, found = await one.plugin("prefilter", {"pod": await one.pod(f"of-{name}")})
            assert found["verdict"] == "full"
        for name, told in (("a", {"default/of-p", "default/of-q"}), ("c", {"default/of-r"}), ("b", {"default/of-s"})):
            assert await waked(one, free(cluster, name), {f"default/of-{held}" for held in "abc"}) == told


async def waked(one, change, holders):
    """The pods that are woken by a change, but for those that lose by it and are decided on anew."""
    seq = one.bridge.requeue_events.seq
    await change
    await until(
        lambda: set(one.bridge.requeue_events.since(seq).pods) - holders and not one.bridge.pods.waiting.looking
    )
    return set(one.bridge.requeue_events.since(seq).pods) - holders


async def test_a_waiting_pod_is_requeued_when_its_fit_check_fails(monkeypatch):
    cluster = loaded(*fleet(1, 1), claim("a"), claim("two"), pod("p", "a"), pod("q", "two"))
    async with running(cluster) as one:
        await one.place("p")
        await one.plugin("prefilter", {"pod": await one.pod("q")})
        monkeypatch.setattr(Decider, "may_fit", lambda *_: 1 / 0)
        assert await waked(one, free(cluster, "a"), {"default/p"}) == {"default/q"}


async def test_a_pod_that_no_node_could_serve_is_told_when_there_are_other_devices_and_not_at_each_heartbeat():
    cluster = loaded(*fleet(1, 1), claim("two", 2), pod("p", "two"))
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert found["verdict"] == "never"
        before = one.bridge.requeue_events.seq
        poll = asyncio.create_task(one.plugin("wake", after=before))
        beat = Merge({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}})  # fmt: skip
        stock = one.bridge.knowledge.stock
        beaten = await cluster.patch(resources.NODES, "n0", beat, subresource="status")
        version = int(beaten.metadata.resource_version)
        [nodes] = [other for other in one.bridge.knowledge._others if other.resource is resources.NODES]
        await until(lambda: int(nodes.health.version) >= version)
        assert one.bridge.requeue_events.seq == before
        assert one.bridge.knowledge.stock is stock
        await cluster.create(resources.NODES, node("n1"))
        await cluster.create(resources.RESOURCE_SLICES, gpus("n1", 2))
        assert (await poll)[1]["pods"] == ["default/p"]


async def test_a_pod_waiting_for_a_claim_or_class_is_notified_when_it_appears():
    cluster = loaded(*fleet(), claim("there", class_name="late"), pod("p", "later"), pod("q", "there"))
    async with running(cluster) as one:
        for name, what in (("p", claim("later")), ("q", device_class("late"))):
            await one.plugin("prefilter", {"pod": await one.pod(name)})
            poll = asyncio.create_task(one.plugin("wake", after=one.bridge.requeue_events.seq))
            kind = resources.RESOURCE_CLAIMS if what["kind"] == "ResourceClaim" else resources.DEVICE_CLASSES
            await cluster.create(kind, what, "default" if kind.namespaced else None)
            assert (await poll)[1]["pods"] == [f"default/{name}"]


# Writes that go wrong


async def test_a_claim_changed_by_another_writer_is_read_again_and_then_written():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Conflict("another writer was faster")
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        assert len(await one.held("a")) == 1


def taken(device, *consumers):
    """The status of a claim that has a device of n0."""
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": device}]
    uids = [{"resource": "pods", "name": uid, "uid": uid} for uid in consumers]
    return {"allocation": {"devices": {"results": results}}, "reservedFor": uids}


async def let_go(one, name):
    """Wait until a claim holds nothing."""
    async with asyncio.timeout(PATIENCE):
        while await one.held(name):  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.005)


async def test_an_allocation_of_an_unbound_pod_yields_to_another_schedulers():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a"))
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        (device,) = await one.held("a")
        status = Merge({"status": taken(device.partition("/")[2], "their-pod")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await let_go(one, "a")
        assert await one.held("theirs") == [device]
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        assert found["verdict"] == "full"
        await until(lambda: one.service.periodic_checks.overlapping == ())
        await told(cluster, "another claim was given the same devices")


async def told(cluster, words):
    """Wait for an event that says this: events are written beside everything else."""
    async with asyncio.timeout(PATIENCE):
        while not any(words in event.message for event in (await cluster.list(resources.EVENTS)).items):  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.005)


class Preceded(Embedded):
    """A store in which, once, something is written just before an allocation, and no watcher learns of claims while they do not flow."""

    def __init__(self):
        super().__init__()
        self.first = None
        self.flowing = asyncio.Event()
        self.flowing.set()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **more):
        async with super().watch(resource, *args, **more) as changes:
            yield self.held_up(changes) if resource.kind == "ResourceClaim" else changes

    async def held_up(self, changes):
        async for change in changes:
            await self.flowing.wait()
            yield change

    async def patch(self, resource, name, patch, namespace=None, **more):
        first, given = self.first, getattr(patch, "body", {})
        if first is not None and (given.get("status") or {}).get("allocation"):
            self.first = None
            await first()
        return await super().patch(resource, name, patch, namespace, **more)


async def test_a_pod_whose_devices_another_scheduler_has_written_before_us_is_not_even_said_to_be_committed():
    """So it is not bound, and the look for overlaps, which comes once a second, need not be in time."""
    cluster = Preceded()
    cluster.load([*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a")])

    async def theirs():
        cluster.flowing.clear()
        status = Merge({"status": taken("gpu-0", "their-pod")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")

    async with running(cluster, tick=3600.0) as one:
        cluster.first = theirs
        placing = asyncio.create_task(one.place("p"))
        await until(lambda: (held := one.bridge.ledger.state.reservations.get("pod-p")) and held.state == "reserved")
        await asyncio.wait_for(one.plugin("state"), PATIENCE)
        assert not placing.done()
        cluster.flowing.set()
        status, said = await placing
        assert (status, said["remedy"]) == (409, "decide again")
        await let_go(one, "a")
        assert await one.held("theirs") == ["n0/gpu-0"]


async def test_claims_on_the_same_device_are_reported_as_drift_and_left_unchanged():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("theirs"), pod("p", "a"), pod("theirs", "theirs", nodeName="n0"))
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        await cluster.bind("p", "default", "n0", uid="pod-p")
        await until(lambda: one.bridge.ledger.state.reservations["pod-p"].state == "bound")
        (device,) = await one.held("a")
        status = Merge({"status": taken(device.partition("/")[2], "pod-theirs")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await until(lambda: one.service.periodic_checks.overlapping)
        _, drift = await one.ask("/api/v1/drift")
        assert drift == {"overlapping": ["default/a", "default/theirs"], "leftBehind": [], "leading": True}
        assert await one.held("a") == await one.held("theirs") == [device]


async def test_the_replica_that_leads_alone_shows_who_has_what_and_how_many_wait():
    """Queries add up what replicas show."""
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="one") as one:
        await until(lambda: one.service.bridge.lead.leads)
        assert (await one.place("p"))[0] == 200
        async with running(cluster, identity="two", leads=False) as two:
            pages = [generate_latest(each.service.metrics.registry).decode() for each in (one, two)]
    assert ["drawbridge_pod_device{" in page for page in pages] == [True, False]
    assert [re.findall(r"^drawbridge_waiting_pods (.*)$", page, re.MULTILINE) for page in pages] == [["2.0"], ["0.0"]]


async def test_objects_that_break_a_round_end_neither_the_lead_nor_the_next_round(caplog):
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        one.service.periodic_checks._look = lambda _: 1 // 0
        await until(lambda: "a bug while checking for overlaps" in caplog.text)
        del one.service.periodic_checks._look
        assert (await one.place("p"))[0] == 200


async def test_an_allocation_left_by_a_deleted_pod_is_freed_at_the_second_sweep():
    left = claim("left")
    left["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    cluster = loaded(*fleet(1, 1), left | {"status": taken("gpu-0", "gone")})
    async with running(cluster, sweep=0.1) as one:
        await let_go(one, "left")


async def test_a_busy_server_is_given_the_time_it_asks_for():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[2] = Throttled("too many requests", retry_after=0.2)
    async with running(cluster) as one:
        begun = asyncio.get_running_loop().time()
        assert (await one.place("p"))[0] == 200
        assert asyncio.get_running_loop().time() - begun >= 0.2
        assert cluster.writes == [("a", ""), ("a", "status"), ("a", "status")]
        lost = {"what": "PatchAllocation", "outcome": "Lost"}
        assert one.service.metrics.registry.get_sample_value("drawbridge_claim_writes_total", lost) is None


async def test_a_server_that_stays_busy_is_named_in_the_log_and_its_refusals_are_answers(caplog, monkeypatch):
    monkeypatch.setattr(commits, "DEADLINE", 0.3)
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Throttled("too many requests", retry_after=60)
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        [said] = [record for record in caplog.records if record.message.startswith("a write failed")]
        assert said.problem == "the API server is busy (too many requests)"
        assert not one.bridge.ledger.commits.may_write_late()


@pytest.mark.parametrize(("error", "late"), [(Unavailable("the connection broke"), True), (Conflict("another"), False)])
async def test_a_write_may_land_late_only_if_it_had_no_answer(error, late):
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = error
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        assert one.bridge.ledger.commits.may_write_late() is late
        assert one.service.election.may_write_late() is late


class SilentWatches(Embedded):
    """A store whose watches of claims stay open and show nothing, from some moment on; lists may be behind, too."""

    silent = False
    stored = None  # what lists of claims answer with

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **options):
        async with super().watch(resource, *args, **options) as shown:
            yield self._silenced(shown) if resource.kind == "ResourceClaim" else shown

    async def _silenced(self, shown):
        async for event in shown:
            while self.silent:  # noqa: ASYNC110  a test turns it off
                await asyncio.sleep(0.01)
            yield event

    async def list(self, resource, *args, **options):
        if resource.kind == "ResourceClaim" and self.stored is not None:
            return self.stored
        return await super().list(resource, *args, **options)


async def test_claims_are_listed_when_their_watch_does_not_show_our_own_writes():
    cluster = SilentWatches()
    cluster.load([*fleet(), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster) as one:
        cluster.silent, one.bridge.ledger.unseen_seconds = True, 0.2
        for name in "pq":
            begun = asyncio.get_running_loop().time()
            assert await one.place(name) == (200, {"committed": True, "message": ""})
            assert asyncio.get_running_loop().time() - begun < 5


async def test_an_allocator_that_does_not_see_its_own_writes_is_not_ready():
    cluster = SilentWatches()
    cluster.load([*fleet(), claim("a"), pod("p", "a")])
    async with running(cluster) as one:
        one.bridge.ledger.unseen_seconds = 0.1
        cluster.stored = await cluster.list(resources.RESOURCE_CLAIMS)
        cluster.silent = True
        placing = asyncio.create_task(one.place("p"))
        assert not one.service.metrics.readiness()[0]["watch"]
        await until(lambda: one.service.metrics.readiness()[0]["watch"])
        words = "resourceclaims.resource.k8s.io: the API server has not shown a write of ours for"
        assert one.service.metrics.readiness()[0]["watch"].startswith(words)
        cluster.silent, cluster.stored = False, None
        assert (await placing)[0] == 200
        await until(lambda: not one.service.metrics.readiness()[0]["watch"])


@pytest.mark.parametrize("where", ["faults", "after"])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_write_without_an_answer_is_looked_up_and_the_pod_is_served(where, number):
    cluster = faulty(*fleet(), claim("a"), claim("b", 2), pod("p", "a"), pod("q", "b"))
    getattr(cluster, where)[number] = Unavailable("the connection broke")
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200
        assert (await one.place("q"))[0] == 200
        assert len({*await one.held("a"), *await one.held("b")}) == 3


@pytest.mark.parametrize("said", LACKING, ids=["of a role", "to bind claims", "none at all"])
async def test_a_right_that_is_missing_is_said_loudly_and_by_readiness(said):
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = said
    async with running(cluster) as one:
        status, answer = await one.place("p")
        assert status == 409
        problems, _ = one.service.metrics.readiness()
        assert said.message in problems["rights"]
        assert answer["error"]
        assert (await one.place("p"))[0] == 200
        problems, _ = one.service.metrics.readiness()
        assert problems["rights"] == ""


async def test_a_missing_permission_no_longer_needed_does_not_block_readiness():
    """Its pod and claim may be gone, and so may what was wrong with the rights."""
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = LACKING[0]
    async with running(cluster) as one:
        await one.place("p")
        assert one.service.metrics.readiness()[0]["rights"]
        lacking = one.bridge.ledger.commits.missing_rights
        assert lacking()
        assert lacking(0.0) == "", "once the time is over"


class Refusing(Faulty):
    """A store that refuses every write into some claims, as a server does whose rules one object breaks."""

    refused: ClassVar[set[str]] = set()

    async def patch(self, resource, name, patch, namespace=None, **more):
        if resource.kind == "ResourceClaim" and name in self.refused:
            self.writes.append((name, more.get("subresource", "")))
            raise Invalid(f"ResourceClaim {name} is invalid: spec: field is immutable")
        return await super().patch(resource, name, patch, namespace, **more)


async def test_unwritable_claims_do_not_delay_other_pods_and_cost_few_writes():
    """There were 119 writes a second without an end, and no readiness again."""
    poison = [f"bad-{at}" for at in range(20)]
    cluster = Refusing()
    cluster.refused = {*poison}
    cluster.load([*fleet(2, 20), *map(claim, poison), *(pod(name, name) for name in poison), claim("a"), pod("p", "a")])
    async with running(cluster) as one:
        begun = time.monotonic()
        for _ in range(5):
            for name in poison:
                status, said = await one.place(name)
                assert status == 409
                assert f"{name} is invalid: spec: field is immutable" in said["error"]
        # After the second refusal a claim rests for 1 s, then 2, 4, ...: on a slow machine some rests end meanwhile.
        ended_rests = int(math.log2(1 + time.monotonic() - begun))
        assert 2 * len(poison) <= len(cluster.writes) <= (2 + ended_rests) * len(poison)
        assert one.service.metrics.readiness()[0]["rights"] == ""
        assert (await one.place("p"))[0] == 200
        events = (await one.cluster.list(resources.EVENTS.raw, "default")).items
        assert {event["involvedObject"]["name"] for event in events if "field is immutable" in event["message"]} == {
            *poison
        }
        for name in poison:
            await one.cluster.delete(resources.PODS, name, "default")
            await one.cluster.delete(resources.RESOURCE_CLAIMS, name, "default")
        await until(lambda: len(one.bridge.ledger.state.holds) == 1)
        assert len(one.bridge.ledger.state.reservations) == 1


async def test_a_claim_whose_pod_was_refused_is_placed_once_the_server_lets_it():
    cluster = Refusing()
    cluster.refused = {"a"}
    cluster.load([*fleet(), claim("a"), pod("p", "a")])
    async with running(cluster) as one:
        for _ in range(3):
            assert (await one.place("p"))[0] == 409
        cluster.refused = set()
        seq = one.bridge.requeue_events.seq
        news = await one.bridge.requeue_events.after(seq, PATIENCE)
        assert news.all or "default/p" in news.pods
        assert (await one.place("p"))[0] == 200


async def test_a_fence_that_has_not_heard_of_us_yet_is_waited_for():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Forbidden(f"ValidatingAdmissionPolicy '{FENCE}' denied request")
    async with running(cluster) as one:
        assert (await one.place("p"))[0] == 200


async def test_a_pod_that_lets_go_while_its_claim_is_written_leaves_nothing_behind():
    cluster = faulty(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last = 1
    async with running(cluster) as one:
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        _, reserved = await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        commit = asyncio.create_task(one.plugin("commit", reserved))
        await until(lambda: cluster.ignored)
        assert (await one.plugin("unreserve", reserved))[0] == 200
        assert (await commit)[0] == 409
        _, while_unsure = await one.plugin("prefilter", {"pod": await one.pod("q")})
        assert while_unsure["verdict"] == "full"
        cluster.last = None
        cluster.heard.set()

        async def placed():
            return (await one.place("q"))[0] == 200 if (await one.plugin("prefilter", {"pod": await one.pod("q")}))[1]["nodes"] else False  # fmt: skip

        async with asyncio.timeout(PATIENCE):
            while not await placed():  # noqa: ASYNC110  what is waited for has no event of its own
                await asyncio.sleep(0.01)
        assert (await one.held("a"), await one.held("b")) == ([], ["n0/gpu-0"])


@pytest.mark.parametrize("seed", range(4))
async def test_failing_writes_share_no_device_and_leave_no_fitting_pod_unserved(seed):
    """Twelve devices, sixteen pods, and every third write goes wrong in one way or another."""
    chance = random.Random(seed)
    pods = [f"p{at}" for at in range(16)]
    cluster = faulty(*fleet(3, 4), *(claim(f"c-{name}") for name in pods), *(pod(name, f"c-{name}") for name in pods))
    wrong = (Conflict("faster"), Unavailable("broken"), Throttled("busy", retry_after=0.01))
    for number in range(1, 200):
        if chance.random() < 0.33:
            way, error = chance.choice((cluster.faults, cluster.after)), chance.choice(wrong)
            way[number] = Unavailable("broken") if way is cluster.after else error
    async with running(cluster) as one:
        served = set()
        async with asyncio.timeout(PATIENCE):
            while len(served) < 12:
                asked = [name for name in pods if name not in served]
                answers = await asyncio.gather(*(try_to_place(one, name) for name in asked))
                served |= {name for name, done in zip(asked, answers, strict=True) if done}
        given = [device for name in pods for device in await one.held(f"c-{name}")]
        assert len(given) == len(set(given)) == 12
        for name in pods:
            users = [consumer.name for consumer in (await one.claim(f"c-{name}")).status.reserved_for]
            assert users == ([name] if name in served else [])


async def try_to_place(one, name):
    _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
    if not found["nodes"]:
        return False
    status, reserved = await one.plugin("reserve", {"token": found["token"], "node": found["nodes"][-1]["name"]})
    return status == 200 and (await one.plugin("commit", reserved))[0] == 200


# Leading


async def test_only_one_of_two_replicas_decides_and_the_other_takes_over_with_all_that_is_held():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="two", leads=False) as two:
        async with running(cluster, identity="one", leads=False) as one:
            await until(lambda: one.bridge.lead.leads or two.bridge.lead.leads)
            first, second = (one, two) if one.bridge.lead.leads else (two, one)
            assert (await second.plugin("prefilter", {"pod": await second.pod("q")}))[0] == 503
            said = (await second.plugin("state"))[1]
            assert (said["leading"], said["ready"], said["message"]) == (False, True, "another replica leads")
            assert (await first.place("p"))[0] == 200
        await until(lambda: two.bridge.lead.leads)
        assert (await two.place("q"))[0] == 200
        assert len({*await two.held("a"), *await two.held("b")}) == 2


@pytest.mark.parametrize("number", [1, 2])
async def test_a_service_that_dies_between_two_writes_leaves_what_the_next_one_finishes(number):
    """After the finalizer; after the allocation. The pod comes again, and no device is held twice or without a pod."""
    cluster = faulty(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last = number
    async with running(cluster, identity="one") as one:
        placing = asyncio.create_task(one.place("p"))
        await until(lambda: placing.done() or cluster.ignored)
    await asyncio.gather(placing, return_exceptions=True)
    assert len(cluster.writes) == number
    cluster.last = None
    async with running(cluster, identity="two") as two:
        assert (await two.place("p"))[0] == 200
        assert (await two.place("q"))[0] == 200
        assert len({*await two.held("a"), *await two.held("b")}) == 2


class LateFence(Embedded):
    """A store whose fence uses its own copy of the lease, which learns of a new holder when it is told to."""

    def __init__(self):
        super().__init__()
        self.has_heard = asyncio.Event()
        self.refused = 0
        self.gone = {}
        self.missed = 0
        self.calls = []  # writes that the fence let pass, and lists of claims

    async def list(self, resource, **how):
        if resource.kind == "ResourceClaim":
            self.calls.append("list")
        return await super().list(resource, **how)

    async def patch(self, resource, name, patch, namespace=None, **more):
        if more.get("dry_run"):
            if name in self.gone:
                self.missed += 1
                raise self.gone[name]
            if not self.has_heard.is_set():
                self.refused += 1
                raise Forbidden(f"ValidatingAdmissionPolicy '{FENCE}' denied request: one does not hold the lease")
            self.calls.append("let")
        return await super().patch(resource, name, patch, namespace, **more)


@pytest.mark.parametrize(
    "gone", [{}, {"a": NotFound("a is gone")}, {"a": Invalid("a is invalid: spec: field is immutable")}]
)
async def test_a_new_leader_lists_claims_only_after_the_fence_recognizes_it(
    gone,
):
    """Its write may pass until then."""
    cluster = LateFence()
    cluster.gone = gone
    cluster.load([*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster, leads=False) as one:
        await until(lambda: cluster.refused > 1)
        assert not one.bridge.lead.leads
        given = {"results": [{"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}]}
        late = {"status": {"allocation": {"devices": given}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}}  # fmt: skip
        await cluster.patch(resources.RESOURCE_CLAIMS, "b", Merge(late), "default", subresource="status")
        cluster.has_heard.set()
        await until(lambda: one.bridge.lead.leads)
        assert cluster.calls[-2:] == ["let", "list"]
        assert (await one.plugin("prefilter", {"pod": await one.pod("p")}))[1]["verdict"] == "full"


async def test_a_fence_that_never_learns_of_a_leader_keeps_it_from_leading_for_so_long_and_no_longer(caplog):
    cluster = LateFence()
    cluster.load([claim("a")])
    claims = await cluster.list(resources.RESOURCE_CLAIMS)
    writer = commits.Commits(cluster, SimpleNamespace(may_write=lambda: True), Metrics())
    await writer.wait_for_fence(claims.items, seconds=0.2)
    assert cluster.refused
    assert "the policy has not seen that this replica holds the Lease" in caplog.text


async def test_leadership_starts_even_if_every_claim_for_the_fence_check_is_gone():
    cluster = LateFence()
    cluster.gone = {f"c-{at}": NotFound("gone") for at in range(100)}
    cluster.load([*fleet(1, 1), *map(claim, cluster.gone)])
    async with running(cluster) as one:
        assert one.bridge.lead.leads
        assert cluster.missed < len(cluster.gone)


async def test_a_leader_that_was_stopped_for_a_while_writes_nothing():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        on = await stopped(one.service.election)
        one.service.election._renewed -= 60.0  # it does not know yet
        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        _, reserved = await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        commit = asyncio.create_task(one.plugin("commit", {"reservation": reserved["reservation"]}))
        await until(lambda: one.bridge.ledger.commits.unsure)
        assert cluster.writes == []
        on.set()
        assert (await commit)[0] == 200  # once the lease is renewed, it goes on


async def stopped(election):
    """Let no renewal begin until what is returned is set, and wait until none is under way."""
    on, reached, hold = asyncio.Event(), asyncio.Event(), election._hold

    async def held():
        reached.set()
        await on.wait()
        return await hold()

    election._hold = held
    await reached.wait()
    return on


async def test_a_member_of_a_group_is_told_that_a_device_is_meant_for_another_member_and_held_by_none():
    """One device: it is kept for the first while the second is tried; once that is committed, it holds it."""
    of = {"schedulingGroup": {"podGroupName": "pair"}}
    other = {"schedulingGroup": {"podGroupName": "other"}}
    pods = [pod("p", "a", **of), pod("q", "b", **of), pod("r", "c", **other)]
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), claim("c"), *pods)
    async with running(cluster) as one:

        async def told(name):
            _, found = await one.plugin("prefilter", {"pod": await one.pod(name)})
            return found["message"], found["reasons"][0]["message"]

        _, found = await one.plugin("prefilter", {"pod": await one.pod("p")})
        _, reserved = await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        for message in await told("q"):
            assert message.endswith("1 of 1 devices are in use: meant for pod default/p of the same group")
        assert (await told("r"))[0].endswith("held by default/a")
        await one.plugin("commit", {"reservation": reserved["reservation"]})
        assert (await told("q"))[0].endswith("held by default/a")


# The extender


async def test_a_member_of_a_group_is_refused_by_the_extender_with_the_reason_unless_it_wants_nothing():
    group = {"podGroupName": "trio"}
    cluster = loaded(*fleet(), claim("a"), pod("p", "a", schedulingGroup=group), pod("plain", schedulingGroup=group))
    async with running(cluster) as one:
        asked = {"Pod": await one.pod("p"), "NodeNames": ["n0", "n1"]}
        _, found = await one.ask("/extender/filter", asked)
        assert (found["NodeNames"], found["Error"], found["FailedAndUnresolvableNodes"].keys()) == (
            [],
            "",
            {"n0", "n1"},
        )
        [said] = set(found["FailedAndUnresolvableNodes"].values())
        assert "PodGroup trio" in said
        assert "plugin" in said
        _, found = await one.ask("/extender/filter", asked | {"Pod": await one.pod("plain")})
        assert found["NodeNames"] == ["n0", "n1"]


async def test_of_pods_that_were_all_sent_to_one_node_as_many_are_bound_as_it_has_devices_and_each_other_one_is_a_conflict():
    """The worst order of calls: every pod is filtered before any is bound, and all choose the first node."""
    nodes, each = 5, 2
    names = [f"p{at}" for at in range(nodes * each)]
    cluster = loaded(*fleet(nodes, each), *map(claim, names), *(pod(name, name) for name in names))
    async with running(cluster) as one:
        waiting, conflicts, rounds = set(names), 0, 0
        while waiting:
            chosen = {name: await first_node(one, name, nodes) for name in sorted(waiting)}
            said = await asyncio.gather(*(bind(one, name, where) for name, where in chosen.items()))
            bound = {name for name, error in zip(chosen, said, strict=True) if not error}
            assert len(bound) == each
            assert {error for error in said if error} <= {"the free devices were taken by another pod"}
            conflicts += len(waiting) - each
            waiting -= bound
            rounds += 1
        assert rounds == nodes
        given = [device for name in names for device in await one.held(name)]
        assert len(set(given)) == len(names)
        counted = {outcome: one.service.metrics.registry.get_sample_value("drawbridge_extender_binds_total", {"outcome": outcome}) for outcome in ("bound", "conflict", "failed")}  # fmt: skip
        assert counted == {"bound": len(names), "conflict": conflicts, "failed": None}


async def first_node(one, name, nodes):
    asked = {"Pod": await one.pod(name), "NodeNames": [f"n{at}" for at in range(nodes)]}
    _, found = await one.ask("/extender/filter", asked)
    return found["NodeNames"][0]


async def bind(one, name, where):
    place = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": where}
    return (await one.ask("/extender/bind", place))[1]["Error"]


async def test_a_stock_scheduler_is_answered_in_its_own_words_and_pods_are_bound():
    cluster = loaded(*fleet(), node("cpu"), claim("a"), pod("p", "a"), pod("plain"))
    async with running(cluster) as one:
        names = ["n0", "n1", "cpu"]
        _, found = await one.ask("/extender/filter", {"Pod": await one.pod("p"), "NodeNames": names})
        assert found == {"NodeNames": ["n0", "n1"], "FailedAndUnresolvableNodes": {}, "Error": ""}
        _, found = await one.ask("/extender/filter", {"Pod": await one.pod("p"), "NodeNames": ["cpu"]})
        assert found["NodeNames"] == []
        assert "cannot serve the claims" in found["FailedAndUnresolvableNodes"]["cpu"]
        _, scores = await one.ask("/extender/prioritize", {"Pod": await one.pod("p"), "NodeNames": ["n0", "n1"]})
        assert scores == [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 0}]
        for name in ("p", "plain"):
            where = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": "n1"}
            assert await one.ask("/extender/bind", where) == (200, {"Error": ""})
            assert (await cluster.get(resources.PODS, name, "default")).spec.node_name == "n1"
        assert await one.held("a") == ["n1/gpu-0"]
        assert (await one.ask("/extender/preempt", {}))[1] == {"NodeNameToMetaVictims": {}}


async def test_a_pod_that_cannot_be_bound_lets_go_of_its_devices():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        where = {"PodName": "p", "PodNamespace": "default", "PodUID": "pod-p", "Node": "nowhere"}
        assert "does not exist" in (await one.ask("/extender/bind", where))[1]["Error"]
        assert await one.held("a") == []


# Questions of people


async def test_a_simulation_says_what_every_kind_of_node_lacks_and_changes_nothing():
    cluster = loaded(*fleet(), node("small"), gpus("small", 1))
    async with running(cluster) as one:
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim("x", 2)["spec"]}}  # fmt: skip
        wanted = pod("new", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
        status, said = await one.ask("/api/v1/simulate-schedule", {"kind": "List", "apiVersion": "v1", "items": [template, wanted]})  # fmt: skip
        assert (status, said["verdict"], sorted(said["nodes"])) == (200, "fits", ["n0", "n1"])
        refusing = said["groups"][-1]
        assert refusing["nodes"] == ["small"]
        assert refusing["stages"]
        assert (await one.ask("/api/simulate-schedule", wanted))[1]["missing"] == ["ResourceClaimTemplate default/t does not exist"]  # fmt: skip
        away = wanted | {"spec": wanted["spec"] | {"nodeSelector": {"zone": "none"}}}
        _, said = await one.ask("/api/v1/simulate-schedule", {"kind": "List", "apiVersion": "v1", "items": [template, away]})  # fmt: skip
        assert (said["verdict"], said["nodes"]) == ("infeasible", []), "no node has the label"
        assert (await one.ask("/api/v1/simulate-schedule", {"a": 1}))[0] == 400
        assert (await one.ask("/api/v1/claims"))[1] == {"claims": []}


async def test_the_api_lists_pods_that_hold_claims_and_nodes_without_holders():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as one:
        await one.place("p", "n0")
        [row] = (await one.ask("/api/v1/claims"))[1]["claims"]
        assert (row["claim"], row["pods"]) == ("default/a", ["p"])
        fleet_now = (await one.ask("/api/v1/fleet"))[1]
        assert fleet_now["nodesWithoutHolders"] == ["n1"]


async def test_the_api_counts_no_device_of_a_superseded_slice():
    [*others, new] = fleet(1, 2)
    old = gpus("n0", 5)
    old["metadata"]["name"] = "old"
    new["spec"]["pool"]["generation"] = 2
    async with running(loaded(*others, new, old)) as one:
        [row] = (await one.ask("/api/v1/fleet"))[1]["pools"]
        assert row["devices"] == 2


async def test_claims_of_other_namespaces_are_not_named_to_a_pod_that_waits_and_an_admin_may_ask():
    """A scheduler puts these words into the pod's events. Its own namespace's claims are named."""
    amounts = {"secret": "40Gi", "mine": "20Gi", "late": "40Gi"}
    claims = {name: claim(name) for name in amounts}
    for name, amount in amounts.items():
        [request] = claims[name]["spec"]["devices"]["requests"]
        request["exactly"]["capacity"] = {"requests": {"memory": amount}}
    theirs = pod("secret", "secret")
    for one in (claims["secret"], theirs):
        one["metadata"]["namespace"] = "theirs"
    whole, node_there, slices = fleet(1, 1)
    slices["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    things = (*claims.values(), theirs, pod("mine", "mine"), pod("late", "late"))
    async with running(loaded(whole, node_there, slices, *things)) as one:
        await one.place("mine")
        _, before = await one.plugin("prefilter", {"pod": await one.pod("late")})
        _, found = await one.plugin("prefilter", {"pod": theirs})
        await one.plugin("reserve", {"token": found["token"], "node": "n0"})
        _, said = await one.plugin("prefilter", {"pod": await one.pod("late")})
        refused = await one.plugin("reserve", {"token": before["token"], "node": "n0"})
        filtered = await one.plugin("filter", {"token": before["token"], "node": "n0"})
        _, extended = await one.ask("/extender/filter", {"Pod": await one.pod("late"), "NodeNames": ["n0"]})
        words = repr((said, refused, filtered, extended))
        assert "theirs" not in words
        assert "default/mine" in words
        assert "a claim of another namespace" in words
        assert "theirs/secret" in repr(await one.ask("/api/v1/claims"))
