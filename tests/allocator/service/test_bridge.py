"""The allocator's service with the embedded store, called over its sockets: what it reserves, writes and frees."""

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
    """A store whose writes of claims can fail. `faults` has errors by number of a write, raised before it; `after` has those raised after it."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.last = None  # writes after this number get no answer
        self.ignored = 0
        self.heard = asyncio.Event()  # set to let the ignored writes through
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


# Questions of a scheduler


async def test_a_pod_is_reserved_committed_and_its_claims_are_written():
    cluster = loaded(*fleet(), claim("a"), claim("b", 2), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        assert await sidecar.place("p") == (200, {"committed": True, "message": ""})
        assert await sidecar.place("q") == (200, {"committed": True, "message": ""})
        given = [*await sidecar.held("a"), *await sidecar.held("b")]
        assert len(set(given)) == 3
        written = await sidecar.claim("a")
        assert written.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
        assert written.status.allocation.allocation_timestamp
        assert [consumer.uid for consumer in written.status.reserved_for] == ["pod-p"]


async def test_reserved_devices_are_not_given_to_another_pod_until_released():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        asked = {name: (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1] for name in ("p", "q")}
        assert asked["p"]["verdict"] == asked["q"]["verdict"] == "fits"
        status, first = await sidecar.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})
        assert (status, await sidecar.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})) == (
            200,
            (200, first),
        )
        status, refused = await sidecar.plugin("reserve", {"token": asked["q"]["token"], "node": "n0"})
        assert (status, refused["remedy"]) == (409, "decide again")
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        assert (found["verdict"], found["nodes"]) == ("full", [])
        assert found["token"], "preemption asks with it what would be if a pod went"
        assert "in use" in found["message"]
        for _ in range(2):
            assert await sidecar.plugin("unreserve", {"reservation": first["reservation"]}) == (200, {})
        assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")}))[1]["verdict"] == "fits"
        assert await sidecar.held("a") == []


async def test_a_node_rule_also_applies_to_reserved_devices():
    """Both pods get "fits" before either reserves."""
    first, second = gpus("n0", 1), gpus("n0", 1)
    second["metadata"]["name"] = second["spec"]["pool"]["name"] = "other"
    spec = {"driver": DRIVER, "compatibleOnlyWith": "false", "scope": "node"}
    kind = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceCompatibility"}
    alone = kind | {"metadata": {"name": "alone"}, "spec": spec}
    pods = (claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster = loaded(device_class(), node("n0"), first, second, alone, *pods)
    async with running(cluster) as sidecar:
        asked = {name: (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1] for name in ("p", "q")}
        assert asked["p"]["verdict"] == asked["q"]["verdict"] == "fits"
        status, held = await sidecar.plugin("reserve", {"token": asked["p"]["token"], "node": "n0"})
        assert status == 200
        status, refused = await sidecar.plugin("reserve", {"token": asked["q"]["token"], "node": "n0"})
        assert (status, refused["remedy"]) == (409, "decide again")
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        assert found["verdict"] == "full"
        assert "DeviceCompatibility/alone keeps it apart from gpu-0 of pool n0 (held by default/a)" in found["message"]
        await sidecar.plugin("unreserve", {"reservation": held["reservation"]})
        assert (await sidecar.place("q"))[0] == 200


async def test_a_second_pod_of_a_claim_follows_the_first():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"), pod("q", "a"))
    async with running(cluster) as sidecar:
        await sidecar.place("p", "n1")
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        assert [place["name"] for place in found["nodes"]] == ["n1"]
        assert (await sidecar.place("q"))[0] == 200
        assert [consumer.uid for consumer in (await sidecar.claim("a")).status.reserved_for] == ["pod-p", "pod-q"]


async def test_each_verdict_says_what_is_in_the_way():
    big, lost = claim("big", 3), claim("lost", class_name="nowhere")
    cluster = loaded(*fleet(), big, lost, pod("plain"), pod("never", "big"), pod("early", "later"), pod("classless", "lost"))  # fmt: skip
    async with running(cluster) as sidecar:
        said = {name: (await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)}))[1] for name in ("plain", "never", "early", "classless")}  # fmt: skip
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
    """Return a pod that requests an extended resource of a DeviceClass."""
    return pod(name, containers=[container("c", {"example.com/gpu": str(count)})], **spec)


MIXED = SERVED, node("n0"), gpus("n0", 1), node("n1", allocatable={"example.com/gpu": "2"})


async def test_nodes_serve_extended_resources_by_plugin_or_by_devices():
    async with running(loaded(*MIXED, pod_by_name("p"))) as sidecar:
        verdict, _ = await until_made(sidecar, "p")
        assert verdict == "fits"
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert [place["name"] for place in found["nodes"]] == ["n0"]
        assert "a device plugin serves example.com/gpu there, and a claim replaces it" in found["reasons"][0]["message"]
        assert (await sidecar.place("p", "n0"))[0] == 200


@pytest.mark.parametrize(
    "pinned", [{}, {"nodeSelector": {"to": "n1"}}], ids=["too few devices", "it may not go where they are"]
)
async def test_without_free_devices_a_pod_uses_a_device_plugin(pinned):
    count = 1 if pinned else 2
    there = node("n1", allocatable={"example.com/gpu": "2"})
    there["metadata"]["labels"] = {"to": "n1"}
    cluster = loaded(*MIXED[:3], there, pod_by_name("p", count, **pinned))
    async with running(cluster) as sidecar:
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert [place["name"] for place in found["nodes"]] == ["n1"]
        assert (await sidecar.place("p", "n1"))[0] == 200
        assert len(sidecar.bridge.ledger.state.reservations) == 0
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def until_made(sidecar, name):
    """Call prefilter until the pod's claim exists; return the verdict and the claim."""
    async with asyncio.timeout(PATIENCE):
        while True:
            _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
            if found["verdict"] != "waiting":
                status = (await sidecar.pod(name))["status"]["extendedResourceClaimStatus"]
                return found["verdict"], await sidecar.claim(status["resourceClaimName"])
            await asyncio.sleep(0.01)


async def test_a_pod_with_an_extended_resource_gets_a_claim():
    cluster = loaded(SERVED, node("n0"), gpus("n0", 1), taint_rule(DRIVER), pod_by_name("p"), pod_by_name("q"))
    async with running(cluster) as sidecar:
        verdict, made = await until_made(sidecar, "p")
        [owner] = made.metadata.owner_references
        assert (verdict, owner.uid, owner.controller) == ("fits", "pod-p", True)
        assert made.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
        assert (await sidecar.pod("p"))["status"]["extendedResourceClaimStatus"]["requestMappings"] == [mapping]
        assert (await sidecar.place("p", "n0"))[0] == 200
        assert len((await sidecar.claim(made.metadata.name)).status.allocation.devices.results) == 1
        assert (await until_made(sidecar, "q"))[0] == "full"


async def test_a_pod_unknown_to_the_informer_gets_its_claim(monkeypatch):
    """No event would requeue the pod, so the first question creates the claim."""
    cluster = loaded(SERVED, node("n0"), gpus("n0", 1), pod_by_name("p"))
    async with running(cluster) as sidecar:
        raw = await sidecar.pod("p")
        monkeypatch.setattr(sidecar.bridge.pods, "by_uid", {})
        assert (await sidecar.plugin("prefilter", {"pod": raw}))[1]["verdict"] == "waiting"
        async with asyncio.timeout(PATIENCE):
            while "extendedResourceClaimStatus" not in (await sidecar.pod("p")).get("status", {}):  # noqa: ASYNC110  what is waited for has no event of its own
                await asyncio.sleep(0.005)


async def test_an_existing_claim_is_used_unless_another_object_owns_it():
    cluster = loaded(SERVED, node("n0"), gpus("n0", 2), pod_by_name("p"), pod_by_name("q"))
    async with running(cluster) as sidecar:
        _, made = await until_made(sidecar, "p")
        await cluster.patch(resources.PODS, "p", Merge({"status": {"extendedResourceClaimStatus": None}}), "default", subresource="status")  # fmt: skip
        _, again = await until_made(sidecar, "p")
        assert again.metadata.uid == made.metadata.uid
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        [name] = re.findall(r"waiting for claim (\S+) to be created", found["message"])
    cluster = loaded(SERVED, node("n0"), gpus("n0", 2), pod_by_name("q"), claim(name))
    async with running(cluster) as sidecar:
        await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        said = f"claim {name} cannot be created: claim {name} was created for something else: delete it"
        await told(cluster, said)
        assert "extendedResourceClaimStatus" not in (await sidecar.pod("q")).get("status", {})


async def test_victims_make_room_and_nominated_pods_take_it():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), claim("c"), pod("p", "a"), pod("q", "b"), pod("r", "c"))
    async with running(cluster) as sidecar:
        _, before = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        await sidecar.place("p")
        question = {"token": before["token"], "node": "n0"}
        assert (await sidecar.plugin("filter", question))[1]["fits"] is False
        victim, nominated = await sidecar.pod("p"), await sidecar.pod("r")
        assert (await sidecar.plugin("filter", question | {"remove": [victim]}))[1]["fits"] is True
        assert (await sidecar.plugin("filter", question | {"remove": [victim], "add": [nominated]}))[1]["fits"] is False


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
async def test_an_invalid_call_gets_an_error_and_a_remedy(call, body, status, words):
    async with running(loaded(*fleet())) as sidecar:
        said = await sidecar.plugin(call, body)
        assert (said[0], sorted(said[1])) == (status, ["error", "remedy"])
        assert words in said[1]["error"]
        assert said[1]["remedy"]


async def test_only_a_client_with_the_token_is_answered(tmp_path):

    secret = tmp_path / "token"
    secret.write_text("only-the-scheduler-knows\n")
    async with running(loaded(*fleet()), token_file=str(secret)) as sidecar:
        assert (await sidecar.plugin("state"))[0] == 401
        sidecar.headers = {"Authorization": "Bearer only-the-scheduler-knows"}
        assert (await sidecar.plugin("state"))[1]["leading"] is True


# Requeueing


async def test_a_waiting_pod_is_notified_when_a_device_is_freed():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster) as sidecar:
        _, begun = await sidecar.plugin("wake", after=0)
        assert begun["all"] is True
        await sidecar.place("p")
        await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        seq, told = sidecar.bridge.requeue_events.seq, set()
        poll = asyncio.create_task(sidecar.plugin("wake", after=seq))
        await free(cluster, "a")
        while "default/q" not in told:
            _, news = await poll
            told.update(news["pods"])
            seq = news["seq"]
            poll = asyncio.create_task(sidecar.plugin("wake", after=seq))
        poll.cancel()


async def free(cluster, name):
    empty = Merge({"status": {"allocation": None, "reservedFor": None}})
    await cluster.patch(resources.RESOURCE_CLAIMS, name, empty, "default", subresource="status")


async def test_freed_devices_requeue_only_pods_that_fit_now():
    """One device becomes free: it requeues pods that request one device of its class, and no others."""
    held = [claim("a"), claim("b"), claim("c", class_name="nic")]
    asked = [claim("p"), claim("q"), claim("r", class_name="nic"), claim("s", 2)]
    nic = gpus("n0", 1)
    nic["metadata"]["name"] = "n0-nic"
    nic["spec"]["driver"] = driver = "nic.example.com"
    nics = device_class("nic", selectors=[{"cel": {"expression": f"device.driver == '{driver}'"}}])
    cluster = loaded(*fleet(1, 2), nic, nics, *held, *asked, *(pod(f"of-{name}", name) for name in "abcpqrs"))  # fmt: skip
    async with running(cluster) as sidecar:
        for name in "abc":
            assert (await sidecar.place(f"of-{name}"))[1]["committed"]
        for name in "pqrs":
            _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(f"of-{name}")})
            assert found["verdict"] == "full"
        for name, told in (("a", {"default/of-p", "default/of-q"}), ("c", {"default/of-r"}), ("b", {"default/of-s"})):
            assert await waked(sidecar, free(cluster, name), {f"default/of-{held}" for held in "abc"}) == told


async def waked(sidecar, change, holders):
    """Return the pods that a change requeues, without the `holders` that lose devices by it."""
    seq = sidecar.bridge.requeue_events.seq
    await change
    await until(
        lambda: set(sidecar.bridge.requeue_events.since(seq).pods) - holders and not sidecar.bridge.pods.waiting.looking
    )
    return set(sidecar.bridge.requeue_events.since(seq).pods) - holders


async def test_a_waiting_pod_is_requeued_when_its_fit_check_fails(monkeypatch):
    cluster = loaded(*fleet(1, 1), claim("a"), claim("two"), pod("p", "a"), pod("q", "two"))
    async with running(cluster) as sidecar:
        await sidecar.place("p")
        await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        monkeypatch.setattr(Decider, "may_fit", lambda *_: 1 / 0)
        assert await waked(sidecar, free(cluster, "a"), {"default/p"}) == {"default/q"}


async def test_new_devices_requeue_an_unservable_pod_but_heartbeats_do_not():
    cluster = loaded(*fleet(1, 1), claim("two", 2), pod("p", "two"))
    async with running(cluster) as sidecar:
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert found["verdict"] == "never"
        before = sidecar.bridge.requeue_events.seq
        poll = asyncio.create_task(sidecar.plugin("wake", after=before))
        beat = Merge({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}})  # fmt: skip
        stock = sidecar.bridge.knowledge.stock
        beaten = await cluster.patch(resources.NODES, "n0", beat, subresource="status")
        version = int(beaten.metadata.resource_version)
        [nodes] = [other for other in sidecar.bridge.knowledge._others if other.resource is resources.NODES]
        await until(lambda: int(nodes.health.version) >= version)
        assert sidecar.bridge.requeue_events.seq == before
        assert sidecar.bridge.knowledge.stock is stock
        await cluster.create(resources.NODES, node("n1"))
        await cluster.create(resources.RESOURCE_SLICES, gpus("n1", 2))
        assert (await poll)[1]["pods"] == ["default/p"]


async def test_a_missing_claim_or_class_requeues_pods_when_created():
    cluster = loaded(*fleet(), claim("there", class_name="late"), pod("p", "later"), pod("q", "there"))
    async with running(cluster) as sidecar:
        for name, what in (("p", claim("later")), ("q", device_class("late"))):
            await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
            poll = asyncio.create_task(sidecar.plugin("wake", after=sidecar.bridge.requeue_events.seq))
            kind = resources.RESOURCE_CLAIMS if what["kind"] == "ResourceClaim" else resources.DEVICE_CLASSES
            await cluster.create(kind, what, "default" if kind.namespaced else None)
            assert (await poll)[1]["pods"] == [f"default/{name}"]


# Writes that go wrong


async def test_a_conflicting_claim_is_read_again_and_written():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Conflict("another writer was faster")
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        assert len(await sidecar.held("a")) == 1


def taken(device, *consumers):
    """Return the status of a claim with a device of n0."""
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n0", "device": device}]
    uids = [{"resource": "pods", "name": uid, "uid": uid} for uid in consumers]
    return {"allocation": {"devices": {"results": results}}, "reservedFor": uids}


async def until_free(sidecar, name):
    """Wait until a claim has no allocation."""
    async with asyncio.timeout(PATIENCE):
        while await sidecar.held(name):  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.005)


async def test_an_allocation_of_an_unbound_pod_yields_to_another_schedulers():
    cluster = loaded(*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a"))
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        (device,) = await sidecar.held("a")
        status = Merge({"status": taken(device.partition("/")[2], "their-pod")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await until_free(sidecar, "a")
        assert await sidecar.held("theirs") == [device]
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert found["verdict"] == "full"
        await until(lambda: sidecar.service.periodic_checks.overlapping == ())
        await told(cluster, "another claim was given the same devices")


async def told(cluster, words):
    """Wait for an Event with these words; Events are written in the background."""
    async with asyncio.timeout(PATIENCE):
        while not any(words in event.message for event in (await cluster.list(resources.EVENTS)).items):  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.005)


class Preceded(Embedded):
    """A store that writes something once just before an allocation, and whose watches of claims can be paused."""

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


async def test_a_commit_after_another_schedulers_allocation_gets_a_conflict():
    """So the pod is not bound, even if the periodic check for overlaps comes later."""
    cluster = Preceded()
    cluster.load([*fleet(1, 1), claim("a"), claim("theirs"), pod("p", "a")])

    async def theirs():
        cluster.flowing.clear()
        status = Merge({"status": taken("gpu-0", "their-pod")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")

    async with running(cluster, tick=3600.0) as sidecar:
        cluster.first = theirs
        placing = asyncio.create_task(sidecar.place("p"))
        await until(
            lambda: (held := sidecar.bridge.ledger.state.reservations.get("pod-p")) and held.state == "reserved"
        )
        await asyncio.wait_for(sidecar.plugin("state"), PATIENCE)
        assert not placing.done()
        cluster.flowing.set()
        status, said = await placing
        assert (status, said["remedy"]) == (409, "decide again")
        await until_free(sidecar, "a")
        assert await sidecar.held("theirs") == ["n0/gpu-0"]


async def test_claims_on_the_same_device_are_reported_as_drift():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("theirs"), pod("p", "a"), pod("theirs", "theirs", nodeName="n0"))
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        await cluster.bind("p", "default", "n0", uid="pod-p")
        await until(lambda: sidecar.bridge.ledger.state.reservations["pod-p"].state == "bound")
        (device,) = await sidecar.held("a")
        status = Merge({"status": taken(device.partition("/")[2], "pod-theirs")})
        await cluster.patch(resources.RESOURCE_CLAIMS, "theirs", status, "default", subresource="status")
        await until(lambda: sidecar.service.periodic_checks.overlapping)
        _, drift = await sidecar.ask("/api/v1/drift")
        assert drift == {"overlapping": ["default/a", "default/theirs"], "leftBehind": [], "leading": True}
        assert await sidecar.held("a") == await sidecar.held("theirs") == [device]


async def test_only_the_leader_shows_allocations_and_waiting_pods_as_metrics():
    """PromQL queries add up the metrics of all replicas."""
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="one") as sidecar:
        await until(lambda: sidecar.service.bridge.lead.leads)
        assert (await sidecar.place("p"))[0] == 200
        async with running(cluster, identity="two", leads=False) as two:
            pages = [generate_latest(each.service.metrics.registry).decode() for each in (sidecar, two)]
    assert ["drawbridge_pod_device{" in page for page in pages] == [True, False]
    assert [re.findall(r"^drawbridge_waiting_pods (.*)$", page, re.MULTILINE) for page in pages] == [["2.0"], ["0.0"]]


async def test_a_bug_in_a_round_does_not_end_the_lead(caplog):
    cluster = loaded(*fleet(1, 1), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        sidecar.service.periodic_checks._look = lambda _: 1 // 0
        await until(lambda: "a bug while checking for overlaps" in caplog.text)
        del sidecar.service.periodic_checks._look
        assert (await sidecar.place("p"))[0] == 200


async def test_the_second_sweep_frees_a_deleted_pods_allocation():
    left = claim("left")
    left["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    cluster = loaded(*fleet(1, 1), left | {"status": taken("gpu-0", "gone")})
    async with running(cluster, sweep=0.1) as sidecar:
        await until_free(sidecar, "left")


async def test_a_throttled_write_waits_as_long_as_the_server_asks():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[2] = Throttled("too many requests", retry_after=0.2)
    async with running(cluster) as sidecar:
        begun = asyncio.get_running_loop().time()
        assert (await sidecar.place("p"))[0] == 200
        assert asyncio.get_running_loop().time() - begun >= 0.2
        assert cluster.writes == [("a", ""), ("a", "status"), ("a", "status")]
        lost = {"what": "PatchAllocation", "outcome": "Lost"}
        assert sidecar.service.metrics.registry.get_sample_value("drawbridge_claim_writes_total", lost) is None


async def test_a_busy_server_is_logged_and_its_refusals_are_answers(caplog, monkeypatch):
    monkeypatch.setattr(commits, "DEADLINE", 0.3)
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Throttled("too many requests", retry_after=60)
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        [said] = [record for record in caplog.records if record.message.startswith("a write failed")]
        assert said.problem == "the API server is busy (too many requests)"
        assert not sidecar.bridge.ledger.commits.may_write_late()


@pytest.mark.parametrize(("error", "late"), [(Unavailable("the connection broke"), True), (Conflict("another"), False)])
async def test_only_an_unanswered_write_may_land_late(error, late):
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = error
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        assert sidecar.bridge.ledger.commits.may_write_late() is late
        assert sidecar.service.election.may_write_late() is late


class SilentWatches(Embedded):
    """A store whose watches of claims can stay open and show nothing; lists can be outdated, too."""

    silent = False
    stored = None  # the answer to lists of claims

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


async def test_claims_are_listed_when_their_watch_misses_our_writes():
    cluster = SilentWatches()
    cluster.load([*fleet(), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster) as sidecar:
        cluster.silent, sidecar.bridge.ledger.unseen_seconds = True, 0.2
        for name in "pq":
            begun = asyncio.get_running_loop().time()
            assert await sidecar.place(name) == (200, {"committed": True, "message": ""})
            assert asyncio.get_running_loop().time() - begun < 5


async def test_an_allocator_blind_to_its_own_writes_is_not_ready():
    cluster = SilentWatches()
    cluster.load([*fleet(), claim("a"), pod("p", "a")])
    async with running(cluster) as sidecar:
        sidecar.bridge.ledger.unseen_seconds = 0.1
        cluster.stored = await cluster.list(resources.RESOURCE_CLAIMS)
        cluster.silent = True
        placing = asyncio.create_task(sidecar.place("p"))
        assert not sidecar.service.metrics.readiness()[0]["watch"]
        await until(lambda: sidecar.service.metrics.readiness()[0]["watch"])
        words = "resourceclaims.resource.k8s.io: the API server has not shown a write of ours for"
        assert sidecar.service.metrics.readiness()[0]["watch"].startswith(words)
        cluster.silent, cluster.stored = False, None
        assert (await placing)[0] == 200
        await until(lambda: not sidecar.service.metrics.readiness()[0]["watch"])


@pytest.mark.parametrize("where", ["faults", "after"])
@pytest.mark.parametrize("number", [1, 2])
async def test_an_unanswered_write_is_read_and_the_pod_placed(where, number):
    cluster = faulty(*fleet(), claim("a"), claim("b", 2), pod("p", "a"), pod("q", "b"))
    getattr(cluster, where)[number] = Unavailable("the connection broke")
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200
        assert (await sidecar.place("q"))[0] == 200
        assert len({*await sidecar.held("a"), *await sidecar.held("b")}) == 3


@pytest.mark.parametrize("said", LACKING, ids=["of a role", "to bind claims", "none at all"])
async def test_a_missing_permission_is_logged_and_fails_readiness(said):
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = said
    async with running(cluster) as sidecar:
        status, answer = await sidecar.place("p")
        assert status == 409
        problems, _ = sidecar.service.metrics.readiness()
        assert said.message in problems["rights"]
        assert answer["error"]
        assert (await sidecar.place("p"))[0] == 200
        problems, _ = sidecar.service.metrics.readiness()
        assert problems["rights"] == ""


async def test_a_missing_permission_no_longer_needed_does_not_block_readiness():
    """The pod and the claim may be gone, or the permission may have been granted."""
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = LACKING[0]
    async with running(cluster) as sidecar:
        await sidecar.place("p")
        assert sidecar.service.metrics.readiness()[0]["rights"]
        lacking = sidecar.bridge.ledger.commits.missing_rights
        assert lacking()
        assert lacking(0.0) == "", "once the time is over"


class Refusing(Faulty):
    """A store that rejects every write of some claims, as an API server does for objects that violate a policy."""

    refused: ClassVar[set[str]] = set()

    async def patch(self, resource, name, patch, namespace=None, **more):
        if resource.kind == "ResourceClaim" and name in self.refused:
            self.writes.append((name, more.get("subresource", "")))
            raise Invalid(f"ResourceClaim {name} is invalid: spec: field is immutable")
        return await super().patch(resource, name, patch, namespace, **more)


async def test_unwritable_claims_delay_no_other_pods():
    """Without a pause there were 119 writes per second, and the allocator did not become ready again."""
    poison = [f"bad-{at}" for at in range(20)]
    cluster = Refusing()
    cluster.refused = {*poison}
    cluster.load([*fleet(2, 20), *map(claim, poison), *(pod(name, name) for name in poison), claim("a"), pod("p", "a")])
    async with running(cluster) as sidecar:
        begun = time.monotonic()
        for _ in range(5):
            for name in poison:
                status, said = await sidecar.place(name)
                assert status == 409
                assert f"{name} is invalid: spec: field is immutable" in said["error"]
        # After the second rejection a claim is paused for 1 s, then 2 s, 4 s, ...: on a slow machine some pauses end meanwhile.
        ended_rests = int(math.log2(1 + time.monotonic() - begun))
        assert 2 * len(poison) <= len(cluster.writes) <= (2 + ended_rests) * len(poison)
        assert sidecar.service.metrics.readiness()[0]["rights"] == ""
        assert (await sidecar.place("p"))[0] == 200
        events = (await sidecar.cluster.list(resources.EVENTS.raw, "default")).items
        assert {event["involvedObject"]["name"] for event in events if "field is immutable" in event["message"]} == {
            *poison
        }
        for name in poison:
            await sidecar.cluster.delete(resources.PODS, name, "default")
            await sidecar.cluster.delete(resources.RESOURCE_CLAIMS, name, "default")
        await until(lambda: len(sidecar.bridge.ledger.state.holds) == 1)
        assert len(sidecar.bridge.ledger.state.reservations) == 1


async def test_a_rejected_pod_is_placed_once_the_server_accepts_writes():
    cluster = Refusing()
    cluster.refused = {"a"}
    cluster.load([*fleet(), claim("a"), pod("p", "a")])
    async with running(cluster) as sidecar:
        for _ in range(3):
            assert (await sidecar.place("p"))[0] == 409
        cluster.refused = set()
        seq = sidecar.bridge.requeue_events.seq
        news = await sidecar.bridge.requeue_events.after(seq, PATIENCE)
        assert news.all or "default/p" in news.pods
        assert (await sidecar.place("p"))[0] == 200


async def test_a_write_is_retried_until_the_fence_accepts_it():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    cluster.faults[1] = Forbidden(f"ValidatingAdmissionPolicy '{FENCE}' denied request")
    async with running(cluster) as sidecar:
        assert (await sidecar.place("p"))[0] == 200


async def test_a_release_during_a_write_leaves_no_allocation():
    cluster = faulty(*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last = 1
    async with running(cluster) as sidecar:
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        _, reserved = await sidecar.plugin("reserve", {"token": found["token"], "node": "n0"})
        commit = asyncio.create_task(sidecar.plugin("commit", reserved))
        await until(lambda: cluster.ignored)
        assert (await sidecar.plugin("unreserve", reserved))[0] == 200
        assert (await commit)[0] == 409
        _, while_unsure = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        assert while_unsure["verdict"] == "full"
        cluster.last = None
        cluster.heard.set()

        async def placed():
            return (await sidecar.place("q"))[0] == 200 if (await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")}))[1]["nodes"] else False  # fmt: skip

        async with asyncio.timeout(PATIENCE):
            while not await placed():  # noqa: ASYNC110  what is waited for has no event of its own
                await asyncio.sleep(0.01)
        assert (await sidecar.held("a"), await sidecar.held("b")) == ([], ["n0/gpu-0"])


@pytest.mark.parametrize("seed", range(4))
async def test_failing_writes_neither_share_devices_nor_starve_pods(seed):
    """Twelve devices, sixteen pods, and every third write fails in one of several ways."""
    chance = random.Random(seed)
    pods = [f"p{at}" for at in range(16)]
    cluster = faulty(*fleet(3, 4), *(claim(f"c-{name}") for name in pods), *(pod(name, f"c-{name}") for name in pods))
    wrong = (Conflict("faster"), Unavailable("broken"), Throttled("busy", retry_after=0.01))
    for number in range(1, 200):
        if chance.random() < 0.33:
            way, error = chance.choice((cluster.faults, cluster.after)), chance.choice(wrong)
            way[number] = Unavailable("broken") if way is cluster.after else error
    async with running(cluster) as sidecar:
        served = set()
        async with asyncio.timeout(PATIENCE):
            while len(served) < 12:
                asked = [name for name in pods if name not in served]
                answers = await asyncio.gather(*(try_to_place(sidecar, name) for name in asked))
                served |= {name for name, done in zip(asked, answers, strict=True) if done}
        given = [device for name in pods for device in await sidecar.held(f"c-{name}")]
        assert len(given) == len(set(given)) == 12
        for name in pods:
            users = [consumer.name for consumer in (await sidecar.claim(f"c-{name}")).status.reserved_for]
            assert users == ([name] if name in served else [])


async def try_to_place(sidecar, name):
    _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
    if not found["nodes"]:
        return False
    status, reserved = await sidecar.plugin("reserve", {"token": found["token"], "node": found["nodes"][-1]["name"]})
    return status == 200 and (await sidecar.plugin("commit", reserved))[0] == 200


# Leading


async def test_a_second_replica_takes_over_with_all_reservations():
    cluster = loaded(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    async with running(cluster, identity="two", leads=False) as two:
        async with running(cluster, identity="one", leads=False) as sidecar:
            await until(lambda: sidecar.bridge.lead.leads or two.bridge.lead.leads)
            first, second = (sidecar, two) if sidecar.bridge.lead.leads else (two, sidecar)
            assert (await second.plugin("prefilter", {"pod": await second.pod("q")}))[0] == 503
            said = (await second.plugin("state"))[1]
            assert (said["leading"], said["ready"], said["message"]) == (False, True, "another replica leads")
            assert (await first.place("p"))[0] == 200
        await until(lambda: two.bridge.lead.leads)
        assert (await two.place("q"))[0] == 200
        assert len({*await two.held("a"), *await two.held("b")}) == 2


@pytest.mark.parametrize("number", [1, 2])
async def test_a_new_service_finishes_the_writes_of_a_killed_one(number):
    """Killed after the finalizer, or after the allocation: the pod is placed, and no device is allocated twice or without a pod."""
    cluster = faulty(*fleet(1, 2), claim("a"), claim("b"), pod("p", "a"), pod("q", "b"))
    cluster.last = number
    async with running(cluster, identity="one") as sidecar:
        placing = asyncio.create_task(sidecar.place("p"))
        await until(lambda: placing.done() or cluster.ignored)
    await asyncio.gather(placing, return_exceptions=True)
    assert len(cluster.writes) == number
    cluster.last = None
    async with running(cluster, identity="two") as two:
        assert (await two.place("p"))[0] == 200
        assert (await two.place("q"))[0] == 200
        assert len({*await two.held("a"), *await two.held("b")}) == 2


class LateFence(Embedded):
    """A store whose fence has its own copy of the Lease, which the test updates."""

    def __init__(self):
        super().__init__()
        self.has_heard = asyncio.Event()
        self.refused = 0
        self.gone = {}
        self.missed = 0
        self.calls = []  # writes that the fence accepted, and lists of claims

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
async def test_a_new_leader_lists_claims_after_the_fence_check(
    gone,
):
    """Until then the fence accepts writes of the former leader."""
    cluster = LateFence()
    cluster.gone = gone
    cluster.load([*fleet(1, 1), claim("a"), claim("b"), pod("p", "a"), pod("q", "b")])
    async with running(cluster, leads=False) as sidecar:
        await until(lambda: cluster.refused > 1)
        assert not sidecar.bridge.lead.leads
        given = {"results": [{"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}]}
        late = {"status": {"allocation": {"devices": given}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-p"}]}}  # fmt: skip
        await cluster.patch(resources.RESOURCE_CLAIMS, "b", Merge(late), "default", subresource="status")
        cluster.has_heard.set()
        await until(lambda: sidecar.bridge.lead.leads)
        assert cluster.calls[-2:] == ["let", "list"]
        assert (await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")}))[1]["verdict"] == "full"


async def test_a_silent_fence_delays_leadership_for_a_limited_time(caplog):
    cluster = LateFence()
    cluster.load([claim("a")])
    claims = await cluster.list(resources.RESOURCE_CLAIMS)
    writer = commits.Commits(cluster, SimpleNamespace(may_write=lambda: True), Metrics())
    await writer.wait_for_fence(claims.items, seconds=0.2)
    assert cluster.refused
    assert "the policy has not seen that this replica holds the Lease" in caplog.text


async def test_leadership_starts_without_claims_for_the_fence_check():
    cluster = LateFence()
    cluster.gone = {f"c-{at}": NotFound("gone") for at in range(100)}
    cluster.load([*fleet(1, 1), *map(claim, cluster.gone)])
    async with running(cluster) as sidecar:
        assert sidecar.bridge.lead.leads
        assert cluster.missed < len(cluster.gone)


async def test_a_leader_with_an_expired_lease_writes_nothing():
    cluster = faulty(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        on = await stopped(sidecar.service.election)
        sidecar.service.election._renewed -= 60.0  # the Lease has expired, and the replica has not noticed yet
        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        _, reserved = await sidecar.plugin("reserve", {"token": found["token"], "node": "n0"})
        commit = asyncio.create_task(sidecar.plugin("commit", {"reservation": reserved["reservation"]}))
        await until(lambda: sidecar.bridge.ledger.commits.unsure)
        assert cluster.writes == []
        on.set()
        assert (await commit)[0] == 200  # after a renewal of the Lease the commit continues


async def stopped(election):
    """Block renewals of the Lease until the returned Event is set; wait until none is under way."""
    on, reached, hold = asyncio.Event(), asyncio.Event(), election._hold

    async def held():
        reached.set()
        await on.wait()
        return await hold()

    election._hold = held
    await reached.wait()
    return on


async def test_a_device_assumed_within_a_group_is_not_called_held():
    """There is one device. While the first pod is assumed, the second one's message says "meant for"; after the commit it says "held by"."""
    of = {"schedulingGroup": {"podGroupName": "pair"}}
    other = {"schedulingGroup": {"podGroupName": "other"}}
    pods = [pod("p", "a", **of), pod("q", "b", **of), pod("r", "c", **other)]
    cluster = loaded(*fleet(1, 1), claim("a"), claim("b"), claim("c"), *pods)
    async with running(cluster) as sidecar:

        async def told(name):
            _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
            return found["message"], found["reasons"][0]["message"]

        _, found = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        _, reserved = await sidecar.plugin("reserve", {"token": found["token"], "node": "n0"})
        for message in await told("q"):
            assert message.endswith("1 of 1 devices are in use: meant for pod default/p of the same group")
        assert (await told("r"))[0].endswith("held by default/a")
        await sidecar.plugin("commit", {"reservation": reserved["reservation"]})
        assert (await told("q"))[0].endswith("held by default/a")


# The extender


async def test_the_extender_refuses_group_members_that_request_devices():
    group = {"podGroupName": "trio"}
    cluster = loaded(*fleet(), claim("a"), pod("p", "a", schedulingGroup=group), pod("plain", schedulingGroup=group))
    async with running(cluster) as sidecar:
        asked = {"Pod": await sidecar.pod("p"), "NodeNames": ["n0", "n1"]}
        _, found = await sidecar.ask("/extender/filter", asked)
        assert (found["NodeNames"], found["Error"], found["FailedAndUnresolvableNodes"].keys()) == (
            [],
            "",
            {"n0", "n1"},
        )
        [said] = set(found["FailedAndUnresolvableNodes"].values())
        assert "PodGroup trio" in said
        assert "plugin" in said
        _, found = await sidecar.ask("/extender/filter", asked | {"Pod": await sidecar.pod("plain")})
        assert found["NodeNames"] == ["n0", "n1"]


async def test_surplus_pods_on_a_node_get_conflicts():
    """The worst order: every pod is filtered before any is bound, and all choose the first node. As many are bound as the node has devices."""
    nodes, each = 5, 2
    names = [f"p{at}" for at in range(nodes * each)]
    cluster = loaded(*fleet(nodes, each), *map(claim, names), *(pod(name, name) for name in names))
    async with running(cluster) as sidecar:
        waiting, conflicts, rounds = set(names), 0, 0
        while waiting:
            chosen = {name: await first_node(sidecar, name, nodes) for name in sorted(waiting)}
            said = await asyncio.gather(*(bind(sidecar, name, where) for name, where in chosen.items()))
            bound = {name for name, error in zip(chosen, said, strict=True) if not error}
            assert len(bound) == each
            assert {error for error in said if error} <= {"the free devices were taken by another pod"}
            conflicts += len(waiting) - each
            waiting -= bound
            rounds += 1
        assert rounds == nodes
        given = [device for name in names for device in await sidecar.held(name)]
        assert len(set(given)) == len(names)
        counted = {outcome: sidecar.service.metrics.registry.get_sample_value("drawbridge_extender_binds_total", {"outcome": outcome}) for outcome in ("bound", "conflict", "failed")}  # fmt: skip
        assert counted == {"bound": len(names), "conflict": conflicts, "failed": None}


async def first_node(sidecar, name, nodes):
    asked = {"Pod": await sidecar.pod(name), "NodeNames": [f"n{at}" for at in range(nodes)]}
    _, found = await sidecar.ask("/extender/filter", asked)
    return found["NodeNames"][0]


async def bind(sidecar, name, where):
    place = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": where}
    return (await sidecar.ask("/extender/bind", place))[1]["Error"]


async def test_a_stock_scheduler_places_pods_with_the_extender():
    cluster = loaded(*fleet(), node("cpu"), claim("a"), pod("p", "a"), pod("plain"))
    async with running(cluster) as sidecar:
        names = ["n0", "n1", "cpu"]
        _, found = await sidecar.ask("/extender/filter", {"Pod": await sidecar.pod("p"), "NodeNames": names})
        assert found == {"NodeNames": ["n0", "n1"], "FailedAndUnresolvableNodes": {}, "Error": ""}
        _, found = await sidecar.ask("/extender/filter", {"Pod": await sidecar.pod("p"), "NodeNames": ["cpu"]})
        assert found["NodeNames"] == []
        assert "cannot serve the claims" in found["FailedAndUnresolvableNodes"]["cpu"]
        _, scores = await sidecar.ask(
            "/extender/prioritize", {"Pod": await sidecar.pod("p"), "NodeNames": ["n0", "n1"]}
        )
        assert scores == [{"Host": "n0", "Score": 0}, {"Host": "n1", "Score": 0}]
        for name in ("p", "plain"):
            where = {"PodName": name, "PodNamespace": "default", "PodUID": f"pod-{name}", "Node": "n1"}
            assert await sidecar.ask("/extender/bind", where) == (200, {"Error": ""})
            assert (await cluster.get(resources.PODS, name, "default")).spec.node_name == "n1"
        assert await sidecar.held("a") == ["n1/gpu-0"]
        assert (await sidecar.ask("/extender/preempt", {}))[1] == {"NodeNameToMetaVictims": {}}


async def test_a_failed_binding_releases_the_devices():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        where = {"PodName": "p", "PodNamespace": "default", "PodUID": "pod-p", "Node": "nowhere"}
        assert "does not exist" in (await sidecar.ask("/extender/bind", where))[1]["Error"]
        assert await sidecar.held("a") == []


# The API for people


async def test_a_simulation_reports_what_each_kind_of_node_lacks():
    cluster = loaded(*fleet(), node("small"), gpus("small", 1))
    async with running(cluster) as sidecar:
        template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claim("x", 2)["spec"]}}  # fmt: skip
        wanted = pod("new", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
        status, said = await sidecar.ask("/api/v1/simulate-schedule", {"kind": "List", "apiVersion": "v1", "items": [template, wanted]})  # fmt: skip
        assert (status, said["verdict"], sorted(said["nodes"])) == (200, "fits", ["n0", "n1"])
        refusing = said["groups"][-1]
        assert refusing["nodes"] == ["small"]
        assert refusing["stages"]
        assert (await sidecar.ask("/api/simulate-schedule", wanted))[1]["missing"] == ["ResourceClaimTemplate default/t does not exist"]  # fmt: skip
        away = wanted | {"spec": wanted["spec"] | {"nodeSelector": {"zone": "none"}}}
        _, said = await sidecar.ask("/api/v1/simulate-schedule", {"kind": "List", "apiVersion": "v1", "items": [template, away]})  # fmt: skip
        assert (said["verdict"], said["nodes"]) == ("infeasible", []), "no node has the label"
        assert (await sidecar.ask("/api/v1/simulate-schedule", {"a": 1}))[0] == 400
        assert (await sidecar.ask("/api/v1/claims"))[1] == {"claims": []}


async def test_the_api_lists_claims_and_idle_nodes():
    cluster = loaded(*fleet(), claim("a"), pod("p", "a"))
    async with running(cluster) as sidecar:
        await sidecar.place("p", "n0")
        [row] = (await sidecar.ask("/api/v1/claims"))[1]["claims"]
        assert (row["claim"], row["pods"]) == ("default/a", ["p"])
        fleet_now = (await sidecar.ask("/api/v1/fleet"))[1]
        assert fleet_now["nodesWithoutHolders"] == ["n1"]


async def test_the_api_counts_no_device_of_a_superseded_slice():
    [*others, new] = fleet(1, 2)
    old = gpus("n0", 5)
    old["metadata"]["name"] = "old"
    new["spec"]["pool"]["generation"] = 2
    async with running(loaded(*others, new, old)) as sidecar:
        [row] = (await sidecar.ask("/api/v1/fleet"))[1]["pools"]
        assert row["devices"] == 2


async def test_messages_do_not_name_claims_of_other_namespaces():
    """A scheduler copies these messages into the pod's events. Claims of the pod's own namespace are named."""
    amounts = {"secret": "40Gi", "mine": "20Gi", "late": "40Gi"}
    claims = {name: claim(name) for name in amounts}
    for name, amount in amounts.items():
        [request] = claims[name]["spec"]["devices"]["requests"]
        request["exactly"]["capacity"] = {"requests": {"memory": amount}}
    theirs = pod("secret", "secret")
    for obj in (claims["secret"], theirs):
        obj["metadata"]["namespace"] = "theirs"
    whole, node_there, slices = fleet(1, 1)
    slices["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
    things = (*claims.values(), theirs, pod("mine", "mine"), pod("late", "late"))
    async with running(loaded(whole, node_there, slices, *things)) as sidecar:
        await sidecar.place("mine")
        _, before = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("late")})
        _, found = await sidecar.plugin("prefilter", {"pod": theirs})
        await sidecar.plugin("reserve", {"token": found["token"], "node": "n0"})
        _, said = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("late")})
        refused = await sidecar.plugin("reserve", {"token": before["token"], "node": "n0"})
        filtered = await sidecar.plugin("filter", {"token": before["token"], "node": "n0"})
        _, extended = await sidecar.ask("/extender/filter", {"Pod": await sidecar.pod("late"), "NodeNames": ["n0"]})
        words = repr((said, refused, filtered, extended))
        assert "theirs" not in words
        assert "default/mine" in words
        assert "a claim of another namespace" in words
        assert "theirs/secret" in repr(await sidecar.ask("/api/v1/claims"))
