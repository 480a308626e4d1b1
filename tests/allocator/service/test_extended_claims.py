"""The claim for a pod that asks by a name is made in the end, whatever fails first and however late our watch shows the pod."""

import asyncio

import pytest

from cluster import resources
from cluster.embedded import Embedded
from cluster.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Throttled, Unauthorized, Unavailable
from runtime.informers import Backoff
from tests.allocator.service.sidecar import gpus, node, pod, running, until
from tests.allocator.service.test_bridge import SERVED, pod_by_name

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
    """A store that fails at the first writes for claims of pods: creations, or the pod's status after them."""

    def __init__(self, failures, at="create"):
        super().__init__()
        self.failures = list(failures)
        self._at = at
        self.load([SERVED, node("n0"), gpus("n0", 1), pod_by_name("p")])

    def _fail(self, at):
        if at == self._at and self.failures:
            raise self.failures.pop(0)

    async def create(self, resource, *arguments, **more):
        if resource.kind == "ResourceClaim":
            self._fail("create")
        return await super().create(resource, *arguments, **more)

    async def patch(self, resource, *arguments, **more):
        if resource.kind == "Pod":
            self._fail("patch")
        return await super().patch(resource, *arguments, **more)


async def ask(one, raw):
    return (await one.plugin("prefilter", {"pod": raw}))[1]["verdict"]


async def has_claim(one):
    return "extendedResourceClaimStatus" in (await one.pod("p")).get("status", {})


async def asked_before_the_watch(one, monkeypatch):
    """Ask about a pod as a scheduler does that knows it before our watch has shown it."""
    one.bridge.extended._backoff = Backoff(least=0.01)
    raw = await one.pod("p")
    monkeypatch.setattr(one.bridge.pods, "by_uid", {})
    assert await ask(one, raw) == "waiting"


@pytest.mark.parametrize("at", ["create", "patch"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: type(one).__name__)
async def test_a_claim_is_made_although_the_first_writes_fail_before_our_watch_shows_the_pod(monkeypatch, failure, at):
    cluster = Failing([failure, failure], at)
    async with running(cluster) as one:
        seq = one.bridge.requeue_events.seq
        await asked_before_the_watch(one, monkeypatch)
        await until(lambda: has_claim(one))
        await until(lambda: "default/p" in one.bridge.requeue_events.since(seq).pods)
        assert await ask(one, await one.pod("p")) == "fits"
        assert cluster.failures == []
        await until(lambda: not one.bridge.extended.is_making("pod-p"))


async def test_a_replica_that_is_not_sure_of_its_lease_for_a_moment_makes_the_claim_all_the_same(monkeypatch):
    async with running(Failing([])) as one:
        sure = [False, False]
        may_write = one.bridge.lead.may_write
        monkeypatch.setattr(one.bridge.lead, "may_write", lambda: sure.pop() if sure else may_write())
        await asked_before_the_watch(one, monkeypatch)
        await until(lambda: has_claim(one))


@pytest.mark.parametrize("what", ["gone", "replaced", "bound"])
async def test_no_claim_is_made_for_a_pod_that_waits_no_more_and_was_never_shown(monkeypatch, what):
    cluster = Failing([Unavailable("no")] * 1000)
    async with running(cluster) as one:
        await asked_before_the_watch(one, monkeypatch)
        if what == "bound":
            await cluster.bind("p", "default", "n0")
        else:
            await cluster.delete(resources.PODS, "p", "default")
            monkeypatch.setattr(one.bridge.pods, "by_uid", {})
        if what == "replaced":
            await cluster.create(
                resources.PODS.raw, pod_by_name("p") | {"metadata": pod("p")["metadata"] | {"uid": "other"}}
            )
            monkeypatch.setattr(one.bridge.pods, "by_uid", {})
        await until(lambda: not one.bridge.extended.is_making("pod-p"))
        assert (await cluster.list(resources.RESOURCE_CLAIMS)).items == ()


async def test_a_write_that_is_never_answered_is_given_up_and_tried_again(monkeypatch):
    cluster = Failing([])
    create, calls = cluster.create, []

    async def hang_once(resource, *arguments, **more):
        if resource.kind == "ResourceClaim" and not calls:
            calls.append(resource)
            await asyncio.Event().wait()
        return await create(resource, *arguments, **more)

    monkeypatch.setattr(cluster, "create", hang_once)
    async with running(cluster) as one:
        one.bridge.extended.deadline = 0.05
        await asked_before_the_watch(one, monkeypatch)
        await until(lambda: has_claim(one))
        assert calls
