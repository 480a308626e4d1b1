"""Pods that request an extended resource: which nodes serve them, and how the allocator creates their claims."""

import asyncio
import re

import pytest

from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized, Unavailable
from cluster.informers import Backoff
from cluster.patch import Merge
from tests.allocator.service.sidecar import (
    DRIVER,
    EXTENDED_RESOURCE_CLASS,
    claim,
    gpus,
    loaded,
    node,
    pod_with_extended_resource,
    running,
    until,
    until_event,
)
from tests.limits import PATIENCE
from webhook.claims import taint_rule

WRITE_ERRORS = (
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


class FailingStore(Embedded):
    """A store whose first writes fail with `failures`: creations of claims if `method` is "create", or patches of pods if it is "patch"."""

    def __init__(self, failures, method="create"):
        super().__init__()
        self.failures = list(failures)
        self._failing_method = method
        self.load([EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), pod_with_extended_resource("p")])

    def _fail(self, method):
        if method == self._failing_method and self.failures:
            raise self.failures.pop(0)

    async def create(self, resource, *arguments, **options):
        if resource.kind == "ResourceClaim":
            self._fail("create")
        return await super().create(resource, *arguments, **options)

    async def patch(self, resource, *arguments, **options):
        if resource.kind == "Pod":
            self._fail("patch")
        return await super().patch(resource, *arguments, **options)


async def verdict_of(sidecar, raw_pod):
    return (await sidecar.plugin("prefilter", {"pod": raw_pod}))[1]["verdict"]


async def pod_has_claim(sidecar):
    return "extendedResourceClaimStatus" in (await sidecar.pod("p")).get("status", {})


async def prefilter_before_the_watch(sidecar, monkeypatch):
    """Call prefilter for a pod that the scheduler knows before the allocator's watch shows the pod."""
    sidecar.service.extended._backoff = Backoff(least=0.01)
    raw_pod = await sidecar.pod("p")
    monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
    assert await verdict_of(sidecar, raw_pod) == "waiting"


@pytest.mark.parametrize("method", ["create", "patch"])
@pytest.mark.parametrize("failure", WRITE_ERRORS, ids=lambda failure: type(failure).__name__)
async def test_a_claim_is_created_although_the_first_writes_fail(monkeypatch, failure, method):
    cluster = FailingStore([failure, failure], method)
    async with running(cluster) as sidecar:
        seq = sidecar.service.requeue_events.seq
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: pod_has_claim(sidecar))
        await until(lambda: "default/p" in sidecar.service.requeue_events.since(seq).pods)
        assert await verdict_of(sidecar, await sidecar.pod("p")) == "fits"
        assert cluster.failures == []
        await until(lambda: not sidecar.service.extended.is_making("pod-p"))


async def test_a_claim_is_created_once_the_lease_is_certain_again(monkeypatch):
    async with running(FailingStore([])) as sidecar:
        lease_checks = [False, False]
        may_write = sidecar.service.lead.may_write
        monkeypatch.setattr(
            sidecar.service.lead, "may_write", lambda: lease_checks.pop() if lease_checks else may_write()
        )
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: pod_has_claim(sidecar))


@pytest.mark.parametrize("state", ["deleted", "replaced", "bound"])
async def test_no_claim_is_created_for_a_bound_or_deleted_pod(monkeypatch, state):
    cluster = FailingStore([Unavailable("no")] * 1000)
    async with running(cluster) as sidecar:
        await prefilter_before_the_watch(sidecar, monkeypatch)
        if state == "bound":
            await cluster.bind("p", "default", "n0")
        else:
            await cluster.delete(resources.PODS, "p", "default")
            monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
        if state == "replaced":
            await cluster.create(resources.PODS.raw, pod_with_extended_resource("p", uid="other"))
            monkeypatch.setattr(sidecar.service.pods, "by_uid", {})
        await until(lambda: not sidecar.service.extended.is_making("pod-p"))
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def test_a_claim_write_without_an_answer_is_retried(monkeypatch):
    cluster = FailingStore([])
    create, calls = cluster.create, []

    async def hang_once(resource, *arguments, **options):
        if resource.kind == "ResourceClaim" and not calls:
            calls.append(resource)
            await asyncio.Event().wait()
        return await create(resource, *arguments, **options)

    monkeypatch.setattr(cluster, "create", hang_once)
    async with running(cluster) as sidecar:
        sidecar.service.extended.deadline = 0.05
        await prefilter_before_the_watch(sidecar, monkeypatch)
        await until(lambda: pod_has_claim(sidecar))
        assert calls


# n0 has a device, and n1 has a device plugin for two devices.
MIXED_FLEET = EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), node("n1", allocatable={"example.com/gpu": "2"})


async def test_a_device_plugins_node_does_not_fit_pods_with_claims():
    async with running(loaded(*MIXED_FLEET, pod_with_extended_resource("p"))) as sidecar:
        verdict, _ = await until_claim_exists(sidecar, "p")
        assert verdict == "fits"
        answer = await sidecar.prefilter("p")
        assert [node_["name"] for node_ in answer["nodes"]] == ["n0"]
        assert (
            "node(s) had a device plugin for example.com/gpu, but the pod already has a claim for it"
            in answer["reasons"][0]["message"]
        )
        assert (await sidecar.place("p", "n0"))[0] == 200


@pytest.mark.parametrize(
    "pod_fields", [{}, {"nodeSelector": {"to": "n1"}}], ids=["too few devices", "no device on the selected node"]
)
async def test_a_pod_without_usable_devices_uses_a_device_plugin(pod_fields):
    count = 1 if pod_fields else 2
    plugin_node = node("n1", allocatable={"example.com/gpu": "2"})
    plugin_node["metadata"]["labels"] = {"to": "n1"}
    cluster = loaded(*MIXED_FLEET[:3], plugin_node, pod_with_extended_resource("p", count, **pod_fields))
    async with running(cluster) as sidecar:
        answer = await sidecar.prefilter("p")
        assert [fitting["name"] for fitting in answer["nodes"]] == ["n1"]
        assert (await sidecar.place("p", "n1"))[0] == 200
        assert len(sidecar.service.ledger.state.reservations) == 0
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def until_claim_exists(sidecar, name):
    """Call prefilter until the pod's claim exists; return the verdict and the claim."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await sidecar.prefilter(name)
            if answer["verdict"] != "waiting":
                status = (await sidecar.pod(name))["status"]["extendedResourceClaimStatus"]
                return answer["verdict"], await sidecar.claim(status["resourceClaimName"])
            await asyncio.sleep(0.01)


async def test_a_pod_with_an_extended_resource_gets_a_claim():
    pods = [pod_with_extended_resource("p"), pod_with_extended_resource("q")]
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 1), taint_rule(DRIVER), *pods)
    async with running(cluster) as sidecar:
        verdict, created = await until_claim_exists(sidecar, "p")
        [owner] = created.metadata.owner_references
        assert (verdict, owner.uid, owner.controller) == ("fits", "pod-p", True)
        assert created.metadata.annotations == {"resource.kubernetes.io/extended-resource-claim": "true"}
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
        assert (await sidecar.pod("p"))["status"]["extendedResourceClaimStatus"]["requestMappings"] == [mapping]
        assert (await sidecar.place("p", "n0"))[0] == 200
        assert len((await sidecar.claim(created.metadata.name)).status.allocation.devices.results) == 1
        assert (await until_claim_exists(sidecar, "q"))[0] == "full"


async def test_an_existing_claim_is_used_unless_another_object_owns_it():
    pods = [pod_with_extended_resource("p"), pod_with_extended_resource("q")]
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 2), *pods)
    async with running(cluster) as sidecar:
        _, created = await until_claim_exists(sidecar, "p")
        await cluster.patch(resources.PODS, "p", Merge({"status": {"extendedResourceClaimStatus": None}}), "default", subresource="status")  # fmt: skip
        _, later_claim = await until_claim_exists(sidecar, "p")
        assert later_claim.metadata.uid == created.metadata.uid
        answer = await sidecar.prefilter("q")
        [name] = re.findall(r"waiting for claim (\S+) to be created", answer["message"])
    cluster = loaded(EXTENDED_RESOURCE_CLASS, node("n0"), gpus("n0", 2), pod_with_extended_resource("q"), claim(name))
    async with running(cluster) as sidecar:
        await sidecar.prefilter("q")
        words = f"claim {name} cannot be created: claim {name} does not belong to the pod: delete the claim"
        await until_event(cluster, words)
        assert "extendedResourceClaimStatus" not in (await sidecar.pod("q")).get("status", {})
