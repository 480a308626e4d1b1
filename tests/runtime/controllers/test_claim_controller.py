"""The claim controller: its decisions as a table, and its work beside the real one's, on both clusters."""

import asyncio
import contextlib
import itertools

import msgspec
import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import NotFound
from cluster.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.objects.claim import POD_CLAIM_NAME, ResourceClaim
from dra.objects.pod import Pod
from dra.wire import convert
from runtime.controllers.claim_controller import ClaimController
from runtime.controllers.claim_decisions import (
    Create,
    Delete,
    RecordNames,
    Write,
    actions_for_claim,
    actions_for_pod,
    generate_name,
)
from runtime.informers import Batch
from tests.cluster.conftest import eventually
from tests.cluster.objects import allocation, claim, pod, template

FINALIZER = "resource.kubernetes.io/delete-protection"
NODE = "node-a"


@pytest.fixture
async def controlled(cluster):
    """A cluster with a claim controller: a real one brings its own."""
    if not isinstance(cluster, Embedded):
        yield cluster
        return
    task = asyncio.ensure_future(ClaimController(cluster).run())
    yield cluster
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def user(name, entry="gpu", source="t", **more):
    claims = [{"name": entry, "resourceClaimTemplateName": source}]
    containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": entry}]}}]
    return pod(name, resourceClaims=claims, containers=containers, **more)


async def create_pod(cluster, home, body):
    return await eventually(lambda: cluster.create(PODS, body, home))


async def made_for(cluster, home, name, entry="gpu"):
    """Wait for the claim of a pod, as its status names it."""

    async def look():
        found = await cluster.get(PODS, name, home)
        named = {
            resource_claim_status.name: resource_claim_status.resource_claim_name
            for resource_claim_status in found.status.resource_claim_statuses
        }
        return named.get(entry) and await cluster.get(RESOURCE_CLAIMS, named[entry], home)

    return await eventually(look)


async def allocate(cluster, home, name, *pods):
    """Do what an allocator does: protect, allocate, reserve."""
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"metadata": {"finalizers": [FINALIZER]}}), home)
    entries = [{"resource": "pods", "name": one.metadata.name, "uid": one.metadata.uid} for one in pods]
    status = {"allocation": allocation(), "reservedFor": entries}
    return await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), home, subresource="status")


async def finish(cluster, home, name, phase="Succeeded"):
    await cluster.patch(PODS, name, Merge({"status": {"phase": phase}}), home, subresource="status")


async def is_gone(cluster, home, name):
    async def look():
        try:
            await cluster.get(RESOURCE_CLAIMS, name, home)
        except NotFound:
            return True
        return False

    return await eventually(look)


async def test_a_template_and_a_pod_become_a_claim(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t", labels={"a": "b"}, annotations={"c": "d"}), home)
    owner = await create_pod(controlled, home, user("train"))
    made = await made_for(controlled, home, "train")
    meta = made.metadata
    assert meta.generate_name == "train-gpu-"
    assert meta.labels == {"a": "b"}
    assert meta.annotations == {"c": "d", POD_CLAIM_NAME: "gpu"}
    (reference,) = meta.owner_references
    assert (reference.api_version, reference.kind, reference.name) == ("v1", "Pod", "train")
    assert (reference.uid, reference.controller, reference.block_owner_deletion) == (owner.metadata.uid, True, None)
    assert made.spec.devices.requests[0].exactly.device_class_name == "gpu.example.com"


async def test_a_template_may_come_after_its_pod(controlled, home):
    await create_pod(controlled, home, user("early"))
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("other"), home)
    await create_pod(controlled, home, user("later", source="other"))
    assert await made_for(controlled, home, "later"), "the first pod was looked at before this one"
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    assert await made_for(controlled, home, "early")


async def test_a_claim_that_was_deleted_is_made_again(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    await create_pod(controlled, home, user("train"))
    first = await made_for(controlled, home, "train")
    await controlled.delete(RESOURCE_CLAIMS, first.metadata.name, home)
    looks = itertools.count()

    async def another():
        # The real controller looks again only when the pod changes; ours does so at once.
        await controlled.patch(PODS, "train", Merge({"metadata": {"labels": {"look": str(next(looks))}}}), home)
        found = (await controlled.list(RESOURCE_CLAIMS, home)).items
        return [one for one in found if one.metadata.uid != first.metadata.uid]

    (again,) = await eventually(another)
    assert again.metadata.annotations[POD_CLAIM_NAME] == "gpu"


async def test_many_pods_get_one_claim_each(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    for number in range(20):
        await create_pod(controlled, home, user(f"p-{number}"))
    names = {(await made_for(controlled, home, f"p-{number}")).metadata.name for number in range(20)}
    found = await controlled.list(RESOURCE_CLAIMS, home)
    assert names == {item.metadata.name for item in found.items}
    assert len(names) == 20


async def test_a_pod_bound_elsewhere_is_added_to_reserved_for(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, user("train"))
    made = await made_for(controlled, home, "train")
    await allocate(controlled, home, made.metadata.name)
    await controlled.bind("train", home, NODE)

    async def reserved():
        found = await controlled.get(RESOURCE_CLAIMS, made.metadata.name, home)
        return [one.uid for one in found.status.reserved_for] == [owner.metadata.uid]

    assert await eventually(reserved)


async def test_the_last_user_takes_the_allocation_with_it(controlled, home):
    await controlled.create(RESOURCE_CLAIMS, claim("shared"), home)
    claims = [{"name": "gpu", "resourceClaimName": "shared"}]
    users = [await create_pod(controlled, home, pod(name, resourceClaims=claims)) for name in ("one", "two")]
    for name in ("one", "two"):
        await controlled.bind(name, home, NODE)
    await allocate(controlled, home, "shared", *users)
    await finish(controlled, home, "one")

    async def left():
        found = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return [one.name for one in found.status.reserved_for] == ["two"] and found

    kept = await eventually(left)
    assert kept.status.allocation is not None
    assert kept.metadata.finalizers == (FINALIZER,)
    await finish(controlled, home, "two", "Failed")

    async def free():
        found = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return found.status.allocation is None and not found.metadata.finalizers

    assert await eventually(free)


class Late(Embedded):
    """A cluster that tells of what becomes of its pods only when the test lets it."""

    def __init__(self):
        super().__init__()
        self.told = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **kwargs):
        async def late(events):
            async for event in events:
                if not getattr(event, "initial_end", False):
                    await self.told.wait()
                yield event

        async with super().watch(resource, *args, **kwargs) as events:
            yield late(events) if resource.id == PODS.id else events


async def test_an_unseen_pod_keeps_its_reservation():
    cluster, home = Late(), "default"
    controller = ClaimController(cluster)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(controller.run())
        await eventually(lambda: asyncio.sleep(0, controller._pods.health.synced))
        await cluster.create(RESOURCE_CLAIMS, claim("shared"), home)
        claims = [{"name": "gpu", "resourceClaimName": "shared"}]
        owner = await cluster.create(PODS, pod("one", resourceClaims=claims), home)
        gone = Pod(metadata=msgspec.structs.replace(owner.metadata, name="gone", uid="of before"))
        await allocate(cluster, home, "shared", owner, gone)

        async def left():
            found = await cluster.get(RESOURCE_CLAIMS, "shared", home)
            return len(found.status.reserved_for) < 2 and found

        kept = await eventually(left)
        assert [one.uid for one in kept.status.reserved_for] == [owner.metadata.uid]
        assert kept.status.allocation is not None
        cluster.told.set()
        running.cancel()


async def test_a_claim_missing_in_an_old_list_is_not_recreated():
    """The reading of the whole collection was under way when the claim was made."""
    cluster, home = Embedded(), "default"
    controller = ClaimController(cluster)
    before = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await cluster.create(PODS, user("train"), home)
    await controller._act(Create("gpu", "t"), home, owner)
    controller._on_claims(Batch((), before, complete=True))
    await controller._act(Create("gpu", "t"), home, owner)
    (made,) = (await cluster.list(RESOURCE_CLAIMS, home)).items
    await cluster.delete(RESOURCE_CLAIMS, made.metadata.name, home)
    later = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    controller._on_claims(Batch((), later, complete=True))
    await controller._act(Create("gpu", "t"), home, owner)
    (again,) = (await cluster.list(RESOURCE_CLAIMS, home)).items
    assert again.metadata.uid != made.metadata.uid, "what a later reading does not have is gone"


async def test_the_claim_of_a_finished_pod_is_deleted(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, user("train"))
    made = await made_for(controlled, home, "train")
    await controlled.bind("train", home, NODE)
    await allocate(controlled, home, made.metadata.name, owner)
    await finish(controlled, home, "train")
    assert await is_gone(controlled, home, made.metadata.name)


async def test_a_claim_made_for_a_pod_goes_with_the_pod(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, user("train"))
    made = await made_for(controlled, home, "train")
    await allocate(controlled, home, made.metadata.name, owner)
    await controlled.delete(PODS, "train", home, grace=0)
    assert await is_gone(controlled, home, made.metadata.name)


async def test_a_deleted_claim_waits_for_its_user(controlled, home):
    for name, source in (("one", "shared"), ("two", "witness")):
        await controlled.create(RESOURCE_CLAIMS, claim(source), home)
        body = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": source}])
        owner = await create_pod(controlled, home, body)
        await controlled.bind(name, home, NODE)
        await allocate(controlled, home, source, owner)
        await controlled.delete(RESOURCE_CLAIMS, source, home)
    await finish(controlled, home, "two")
    assert await is_gone(controlled, home, "witness"), "what was deleted before it was looked at, too"
    held = await controlled.get(RESOURCE_CLAIMS, "shared", home)
    assert held.metadata.deletion_timestamp
    assert held.status.allocation is not None
    await finish(controlled, home, "one")
    assert await is_gone(controlled, home, "shared")


async def test_an_unused_deleted_claim_is_deallocated_and_removed(controlled, home):
    await controlled.create(RESOURCE_CLAIMS, claim("unused"), home)
    await allocate(controlled, home, "unused")
    await controlled.delete(RESOURCE_CLAIMS, "unused", home)
    assert await is_gone(controlled, home, "unused")


async def test_a_consumer_of_an_unknown_kind_is_left_alone(controlled, home):
    await controlled.create(RESOURCE_CLAIMS, claim("shared"), home)
    await controlled.patch(RESOURCE_CLAIMS, "shared", Merge({"metadata": {"finalizers": [FINALIZER]}}), home)
    robot = {"apiGroup": "example.com", "resource": "robots", "name": "r", "uid": "1"}
    ghost = {"resource": "pods", "name": "ghost", "uid": "2"}
    body = {"status": {"allocation": allocation(), "reservedFor": [robot, ghost]}}
    await controlled.patch(RESOURCE_CLAIMS, "shared", Merge(body), home, subresource="status")

    async def left():
        found = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return [one.resource for one in found.status.reserved_for] == ["robots"] and found

    assert (await eventually(left)).status.allocation is not None


@pytest.mark.parametrize(
    ("pod_name", "entry", "expected"),
    [
        ("train", "gpu", "train-gpu-"),
        ("a" * 28, "b" * 28, "a" * 28 + "-" + "b" * 28 + "-"),
        ("a" * 60, "b" * 20, "a" * 42 + "-" + "b" * 14 + "-"),
        ("a" * 250, "b", "a" * 56 + "--"),
    ],
)
def test_long_names_are_shortened_in_proportion(pod_name, entry, expected):
    assert generate_name(pod_name, entry) == expected
    assert len(expected) <= 58


def typed_pod(**status):
    body = user("train", metadata={"uid": "p-1", "namespace": "ns"}) | {"status": {"phase": "Pending"} | status}
    return convert(body, Pod)


def typed_claim(name="train-gpu-abcde", *, owned=True, finalizers=(), **status):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "p-1", "controller": True}
    meta = {
        "uid": "c-1",
        "resourceVersion": "7",
        "finalizers": list(finalizers),
        "annotations": {POD_CLAIM_NAME: "gpu"},
    }
    return convert(
        claim(name, metadata=meta | ({"ownerReferences": [owner]} if owned else {}), status=status), ResourceClaim
    )


NAMED = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-abcde"}]}
USER = {"resource": "pods", "name": "train", "uid": "p-1"}


def kinds(actions):
    return [type(action).__name__ for action in actions]


@pytest.mark.parametrize(
    ("pod", "claims", "expected"),
    [
        (typed_pod(), [], [Create("gpu", "t")]),
        (typed_pod(), [typed_claim(owned=False)], [Create("gpu", "t")]),
        (typed_pod(**NAMED), [typed_claim()], []),
        (typed_pod(**NAMED), [], [Create("gpu", "t")]),
        (typed_pod(resourceClaimStatuses=[{"name": "gpu"}]), [], []),
        (typed_pod(phase="Succeeded"), [], []),
    ],
    ids=["new", "foreign claim of the name", "made", "made and lost", "none needed", "finished"],
)
def test_a_missing_claim_of_a_pod_is_created(pod, claims, expected):
    assert actions_for_pod(pod, claims) == expected


def test_a_claim_missing_in_the_pod_status_is_found():
    assert kinds(actions_for_pod(typed_pod(), [typed_claim()])) == ["RecordNames"]


@pytest.mark.parametrize(
    ("claim", "pod", "expected"),
    [
        (typed_claim(), typed_pod(), []),
        (typed_claim(allocation=allocation(), reservedFor=[USER]), typed_pod(), []),
        (typed_claim(), typed_pod(phase="Failed"), [Delete("train-gpu-abcde", "c-1")]),
        (typed_claim(), None, []),
    ],
    ids=["waiting", "in use", "finished", "orphaned: left to the collector"],
)
def test_a_claim_is_deleted_only_when_its_pod_has_finished(claim, pod, expected):
    assert actions_for_claim(claim, lambda _: pod) == expected


def test_an_allocation_without_our_finalizer_is_not_taken_back():
    (write,) = actions_for_claim(typed_claim(allocation=allocation(), reservedFor=[USER]), lambda _: None)
    assert write.patch.body["status"] == {"reservedFor": None}


def test_a_protected_claim_keeps_its_finalizer_until_deletion():
    assert actions_for_claim(typed_claim(finalizers=[FINALIZER]), lambda _: typed_pod()) == []
    going = typed_claim(finalizers=[FINALIZER])
    going = msgspec.structs.replace(
        going, metadata=msgspec.structs.replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    (write,) = actions_for_claim(going, lambda _: None)
    assert write.patch.body == {"metadata": {"uid": "c-1", "resourceVersion": "7", "finalizers": None}}


def test_a_release_names_the_version_it_was_decided_on():
    held = typed_claim(allocation=allocation(), reservedFor=[USER], finalizers=[FINALIZER])
    (write,) = actions_for_claim(held, lambda _: None)
    assert isinstance(write, Write)
    assert write.patch.body == {
        "metadata": {"uid": "c-1", "resourceVersion": "7"},
        "status": {"reservedFor": None, "allocation": None, "devices": None},
    }


def test_a_recorded_name_is_forced_by_the_controllers_own_manager():
    (record,) = actions_for_pod(typed_pod(), [typed_claim()])
    assert isinstance(record, RecordNames)
    assert (record.patch.manager, record.patch.force) == ("ResourceClaimController", True)
