"""Pods that request an extended resource: which nodes serve them, and how the allocator creates their claims."""

import asyncio
import re

import pytest

from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized, Unavailable
from cluster.patch import Merge
from runtime.informers import Backoff
from tests.allocator.service.sidecar import (
    DRIVER,
    EXTENDED_RESOURCE_CLASS,
    claim,
    gpus,
    loaded,
    node,
    pod,
    pod_with_extended_resource,
    running,
    until,
    until_event,
)
from tests.limits import PATIENCE
from webhook.claims import taint_rule

FAILURES = (
    NotFound("the server could not find the requested resource"),
    Conflict("the object has been modified"),
    Forbidden("namespace default is being created"),
    Invalid("spec: invalid"),
    BadRequest("no"),
    Unauthorized("Unauthorized"),
    Throttled("later", retry_after=0.01),
    Unavailable("the server is shutting down"),
    Unavailable("etcdserver: request timed out", status=504),
    TimeoutError(),
    ValueError("a bug"),
)


class Failing(Embedded):
    """A store whose first writes for claims of pods fail: the creations, or the pods' status after them."""

    def __init__(self, failures, method="create"):
        super().__init__()
        self.failures = list(failures)
        self._at = method
        self.load([EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), pod_with_extended_resource("p")])

    def _fail(self, method):
        if method == self._at and self.failures:
            raise self.failures.pop(0)

    async def create(self, resource, *arguments, **more):
        if resource.kind == "ResourceClaim":
            self._fail("create")
        return await super().create(resource, *arguments, **more)

    async def patch(self, resource, *arguments, **more):
        if resource.kind == "Pod":
            self._fail("patch")
        return await super().patch(resource, *arguments, **more)


async def ask(sidecar, raw):
    return (await sidecar.plugin("prefilter", {"pod": raw}))[1]["verdict"]


async def has_claim(sidecar):
    return "extendedResourceClaimStatus" in (await sidecar.pod("p")).get("status", {})


async def prefilter_before_the_watch(sidecar, monkeypatch):
    """Call prefilter for a pod that the scheduler knows before the allocator's watch shows it."""
    sidecar.service.extended._backoff = Backoff(least=0.01)
    raw = await sidecar.pod("p")
    monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
    assert await ask(sidecar, raw) == "waiting"


@pytest.mark.parametrize("method", ["create", "patch"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_an_unwatched_pods_claim_is_created_after_failed_writes(monkeypatch, failure, method):
    cluster = Failing([failure, failure], method)
    async with running(cluster) as sidecar:
        seq = sidecar.service.requeue_events.seq
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: has_claim(sidecar))
        await until(lambda: "default/p" in sidecar.service.requeue_events.since(seq).pods)
        assert await ask(sidecar, await sidecar.pod("p")) == "fits"
        assert cluster.failures == []
        await until(lambda: not sidecar.service.extended.is_making("pod-p"))


async def test_a_claim_is_created_after_a_moment_of_uncertain_lease(monkeypatch):
    async with running(Failing([])) as sidecar:
        lease_checks = [False, False]
        may_write = sidecar.service.lead.may_write
        monkeypatch.setattr(
            sidecar.service.lead, "may_write", lambda: lease_checks.pop() if lease_checks else may_write()
        )
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: has_claim(sidecar))


@pytest.mark.parametrize("state", ["gone", "replaced", "bound"])
async def test_no_claim_is_created_for_a_bound_or_deleted_pod(monkeypatch, state):
    cluster = Failing([Unavailable("no")] * 1000)
    async with running(cluster) as sidecar:
        await prefilter_before_the_watch(sidecar, monkeypatch)
        if state == "bound":
            await cluster.bind("p", "default", "n0")
        else:
            await cluster.delete(resources.PODS, "p", "default")
            monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
        if state == "replaced":
            await cluster.create(
                resources.PODS.raw, pod_with_extended_resource("p") | {"metadata": pod("p")["metadata"] | {"uid": "other"}}
            )
            monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
        await until(lambda: not sidecar.service.extended.is_making("pod-p"))
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def test_a_claim_write_without_an_answer_is_retried(monkeypatch):
    cluster = Failing([])
    create, calls = cluster.create, []

    async def hang_once(resource, *arguments, **more):
        if resource.kind == "ResourceClaim" and not calls:
            calls.append(resource)
            await asyncio.Event().wait()
        return await create(resource, *arguments, **more)

    monkeypatch.setattr(cluster, "create", hang_once)
    async with running(cluster) as sidecar:
        sidecar.service.extended.deadline = 0.05
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: has_claim(sidecar))
        assert calls


MIXED = EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), node("n1", allocatable={"example.com/gpu": "2"})


async def test_nodes_serve_extended_resources_by_plugin_or_by_devices():
    async with running(loaded(*MIXED, pod_with_extended_resource("p"))) as sidecar:
        verdict, _ = await until_made(sidecar, "p")
        assert verdict == "fits"
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert [node_["name"] for node_ in answer["nodes"]] == ["n0"]
        assert (
            "node(s) had a device plugin for example.com/gpu, but the pod already has a claim for it"
            in answer["reasons"][0]["message"]
        )
        assert (await sidecar.place("p", "n0"))[0] == 200


@pytest.mark.parametrize(
    "pinned", [{}, {"nodeSelector": {"to": "n1"}}], ids=["too few devices", "it may not go where they are"]
)
async def test_without_free_devices_a_pod_uses_a_device_plugin(pinned):
    count = 1 if pinned else 2
    plugin_node = node("n1", allocatable={"example.com/gpu": "2"})
    plugin_node["metadata"]["labels"] = {"to": "n1"}
    cluster = loaded(*MIXED[:3], plugin_node, pod_with_extended_resource("p", count, **pinned))
    async with running(cluster) as sidecar:
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("p")})
        assert [fitting["name"] for fitting in answer["nodes"]] == ["n1"]
        assert (await sidecar.place("p", "n1"))[0] == 200
        assert len(sidecar.service.ledger.state.reservations) == 0
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def until_made(sidecar, name):
    """Call prefilter until the pod's claim exists; return the verdict and the claim."""
    async with asyncio.timeout(PATIENCE):
        while True:
            _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod(name)})
            if answer["verdict"] != "waiting":
                status = (await sidecar.pod(name))["status"]["extendedResourceClaimStatus"]
                return answer["verdict"], await sidecar.claim(status["resourceClaimName"])
            await asyncio.sleep(0.01)


async def test_a_pod_with_an_extended_resource_gets_a_claim():
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), taint_rule(DRIVER), pod_with_extended_resource("p"), pod_with_extended_resource("q"))
    async with running(cluster) as sidecar:
        verdict, created = await until_made(sidecar, "p")
        [owner] = created.metadata.owner_references
        assert (verdict, owner.uid, owner.controller) == ("fits", "pod-p", True)
        assert created.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
        assert (await sidecar.pod("p"))["status"]["extendedResourceClaimStatus"]["requestMappings"] == [mapping]
        assert (await sidecar.place("p", "n0"))[0] == 200
        assert len((await sidecar.claim(created.metadata.name)).status.allocation.devices.results) == 1
        assert (await until_made(sidecar, "q"))[0] == "full"


async def test_a_pod_unknown_to_the_informer_gets_its_claim(monkeypatch):
    """No event would requeue the pod, so the first question creates the claim."""
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), pod_with_extended_resource("p"))
    async with running(cluster) as sidecar:
        raw = await sidecar.pod("p")
        monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
        assert (await sidecar.plugin("prefilter", {"pod": raw}))[1]["verdict"] == "waiting"
        await until(lambda: has_claim(sidecar))


async def test_an_existing_claim_is_used_unless_another_object_owns_it():
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 2), pod_with_extended_resource("p"), pod_with_extended_resource("q"))
    async with running(cluster) as sidecar:
        _, created = await until_made(sidecar, "p")
        await cluster.patch(resources.PODS, "p", Merge({"status": {"extendedResourceClaimStatus": None}}), "default", subresource="status")  # fmt: skip
        _, again = await until_made(sidecar, "p")
        assert again.metadata.uid == created.metadata.uid
        _, answer = await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        [name] = re.findall(r"waiting for claim (\S+) to be created", answer["message"])
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 2), pod_with_extended_resource("q"), claim(name))
    async with running(cluster) as sidecar:
        await sidecar.plugin("prefilter", {"pod": await sidecar.pod("q")})
        words = f"claim {name} cannot be created: claim {name} does not belong to the pod: delete the claim"
        await until_event(cluster, words)
        assert "extendedResourceClaimStatus" not in (await sidecar.pod("q")).get("status", {})
