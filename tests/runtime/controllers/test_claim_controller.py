"""The claim controller on a cluster."""

import asyncio
import contextlib
import itertools

import msgspec
import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import NotFound
from cluster.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.objects.claim import POD_CLAIM_NAME
from dra.objects.pod import Pod
from runtime.controllers.claim_controller import ClaimController
from runtime.controllers.claim_decisions import Create, generate_name
from runtime.informers import Batch
from tests.cluster.conftest import eventually
from tests.cluster.objects import FINALIZER, allocation, claim, pod, pod_with_claim, template

NODE = "node-a"


@pytest.fixture
async def controlled(cluster):
    """Yield a cluster with a running claim controller. A real cluster already has one."""
    if not isinstance(cluster, Embedded):
        yield cluster
        return
    task = asyncio.ensure_future(ClaimController(cluster).run())
    yield cluster
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def create_pod(cluster, home, body):
    return await eventually(lambda: cluster.create(PODS, body, home))


async def claim_of_pod(cluster, home, name, entry="gpu"):
    """Wait until the status of a pod names the claim of one of its entries; return the claim."""

    async def look():
        pod_ = await cluster.get(PODS, name, home)
        named = {
            resource_claim_status.name: resource_claim_status.resource_claim_name
            for resource_claim_status in pod_.status.resource_claim_statuses
        }
        return named.get(entry) and await cluster.get(RESOURCE_CLAIMS, named[entry], home)

    return await eventually(look)


async def allocate(cluster, home, name, *pods):
    """Act as an allocator: add the finalizer to a claim, allocate it, and reserve it for pods."""
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"metadata": {"finalizers": [FINALIZER]}}), home)
    entries = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
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
    owner = await create_pod(controlled, home, pod_with_claim("train"))
    made = await claim_of_pod(controlled, home, "train")
    meta = made.metadata
    assert meta.generate_name == "train-gpu-"
    assert meta.labels == {"a": "b"}
    assert meta.annotations == {"c": "d", POD_CLAIM_NAME: "gpu"}
    (reference,) = meta.owner_references
    assert (reference.api_version, reference.kind, reference.name) == ("v1", "Pod", "train")
    assert (reference.uid, reference.controller, reference.block_owner_deletion) == (owner.metadata.uid, True, None)
    assert made.spec.devices.requests[0].exactly.device_class_name == "gpu.example.com"


async def test_a_template_may_come_after_its_pod(controlled, home):
    await create_pod(controlled, home, pod_with_claim("early"))
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("other"), home)
    await create_pod(controlled, home, pod_with_claim("later", source="other"))
    assert await claim_of_pod(controlled, home, "later"), "the controller saw the first pod before this one"
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    assert await claim_of_pod(controlled, home, "early")


async def test_a_deleted_claim_is_created_again(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    await create_pod(controlled, home, pod_with_claim("train"))
    first = await claim_of_pod(controlled, home, "train")
    await controlled.delete(RESOURCE_CLAIMS, first.metadata.name, home)
    looks = itertools.count()

    async def another():
        # The real controller retries only when the pod changes; ours retries at once.
        await controlled.patch(PODS, "train", Merge({"metadata": {"labels": {"look": str(next(looks))}}}), home)
        claims = (await controlled.list(RESOURCE_CLAIMS, home)).items
        return [claim for claim in claims if claim.metadata.uid != first.metadata.uid]

    (again,) = await eventually(another)
    assert again.metadata.annotations[POD_CLAIM_NAME] == "gpu"


async def test_many_pods_get_one_claim_each(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    for number in range(20):
        await create_pod(controlled, home, pod_with_claim(f"p-{number}"))
    names = {(await claim_of_pod(controlled, home, f"p-{number}")).metadata.name for number in range(20)}
    page = await controlled.list(RESOURCE_CLAIMS, home)
    assert names == {item.metadata.name for item in page.items}
    assert len(names) == 20


async def test_a_pod_bound_elsewhere_is_added_to_reserved_for(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, pod_with_claim("train"))
    made = await claim_of_pod(controlled, home, "train")
    await allocate(controlled, home, made.metadata.name)
    await controlled.bind("train", home, NODE)

    async def reserved():
        claim_ = await controlled.get(RESOURCE_CLAIMS, made.metadata.name, home)
        return [consumer.uid for consumer in claim_.status.reserved_for] == [owner.metadata.uid]

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
        claim_ = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return [consumer.name for consumer in claim_.status.reserved_for] == ["two"] and claim_

    kept = await eventually(left)
    assert kept.status.allocation is not None
    assert kept.metadata.finalizers == (FINALIZER,)
    await finish(controlled, home, "two", "Failed")

    async def free():
        claim_ = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return claim_.status.allocation is None and not claim_.metadata.finalizers

    assert await eventually(free)


class LatePodEvents(Embedded):
    """A cluster that holds back events of pods until `released` is set, except the end of a streamed list."""

    def __init__(self):
        super().__init__()
        self.released = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **kwargs):
        async def late(events):
            async for event in events:
                if not getattr(event, "initial_end", False):
                    await self.released.wait()
                yield event

        async with super().watch(resource, *args, **kwargs) as events:
            yield late(events) if resource.id == PODS.id else events


async def test_an_unseen_pod_keeps_its_reservation():
    cluster, home = LatePodEvents(), "default"
    controller = ClaimController(cluster)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(controller.run())
        await eventually(lambda: asyncio.sleep(0, controller._pods.is_synced))
        await cluster.create(RESOURCE_CLAIMS, claim("shared"), home)
        claims = [{"name": "gpu", "resourceClaimName": "shared"}]
        owner = await cluster.create(PODS, pod("one", resourceClaims=claims), home)
        gone = Pod(metadata=msgspec.structs.replace(owner.metadata, name="gone", uid="of before"))
        await allocate(cluster, home, "shared", owner, gone)

        async def left():
            claim_ = await cluster.get(RESOURCE_CLAIMS, "shared", home)
            return len(claim_.status.reserved_for) < 2 and claim_

        kept = await eventually(left)
        assert [consumer.uid for consumer in kept.status.reserved_for] == [owner.metadata.uid]
        assert kept.status.allocation is not None
        cluster.released.set()
        running.cancel()


async def test_a_claim_missing_in_an_old_list_is_not_recreated():
    """The list was read before the claim was created, and the controller receives it afterwards."""
    cluster, home = Embedded(), "default"
    controller = ClaimController(cluster)
    before = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await cluster.create(PODS, pod_with_claim("train"), home)
    await controller._execute(Create("gpu", "t"), home, owner)
    controller._on_claims(Batch((), before, complete=True))
    await controller._execute(Create("gpu", "t"), home, owner)
    (made,) = (await cluster.list(RESOURCE_CLAIMS, home)).items
    await cluster.delete(RESOURCE_CLAIMS, made.metadata.name, home)
    later = (await cluster.list(RESOURCE_CLAIMS, home)).resource_version
    controller._on_claims(Batch((), later, complete=True))
    await controller._execute(Create("gpu", "t"), home, owner)
    (again,) = (await cluster.list(RESOURCE_CLAIMS, home)).items
    assert again.metadata.uid != made.metadata.uid, "a claim that a later list lacks is gone"


async def test_the_claim_of_a_finished_pod_is_deleted(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, pod_with_claim("train"))
    made = await claim_of_pod(controlled, home, "train")
    await controlled.bind("train", home, NODE)
    await allocate(controlled, home, made.metadata.name, owner)
    await finish(controlled, home, "train")
    assert await is_gone(controlled, home, made.metadata.name)


async def test_a_pods_claim_is_deleted_with_the_pod(controlled, home):
    await controlled.create(RESOURCE_CLAIM_TEMPLATES, template("t"), home)
    owner = await create_pod(controlled, home, pod_with_claim("train"))
    made = await claim_of_pod(controlled, home, "train")
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
    assert await is_gone(controlled, home, "witness"), "also a claim that was deleted before the controller saw it"
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
        claim_ = await controlled.get(RESOURCE_CLAIMS, "shared", home)
        return [consumer.resource for consumer in claim_.status.reserved_for] == ["robots"] and claim_

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
