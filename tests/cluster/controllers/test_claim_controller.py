"""The claim controller on a cluster."""

import asyncio
import contextlib
import itertools

import msgspec
import pytest

from cluster import Merge
from cluster.controllers.claim_controller import ClaimController
from cluster.controllers.claim_decisions import Create, generate_name
from cluster.embedded.embedded import Embedded
from cluster.errors import NotFound
from cluster.informers import Batch
from cluster.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from dra.objects.claim import POD_CLAIM_NAME
from dra.objects.pod import Pod
from tests.cluster.conftest import eventually
from tests.cluster.objects import FINALIZER, allocation, claim, pod, pod_with_claim, template

NODE = "node-a"


@pytest.fixture
async def controlled_cluster(cluster):
    """Yield a cluster with a running claim controller. A real cluster already has one."""
    if not isinstance(cluster, Embedded):
        yield cluster
        return
    task = asyncio.ensure_future(ClaimController(cluster).run())
    yield cluster
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def create_pod(cluster, namespace, body):
    return await eventually(lambda: cluster.create(PODS, body, namespace))


async def claim_of_pod(cluster, namespace, name, entry="gpu"):
    """Wait until the status of a pod names the claim of one of its entries; return the claim."""

    async def find_claim():
        pod_ = await cluster.get(PODS, name, namespace)
        claim_names = {
            resource_claim_status.name: resource_claim_status.resource_claim_name
            for resource_claim_status in pod_.status.resource_claim_statuses
        }
        return claim_names.get(entry) and await cluster.get(RESOURCE_CLAIMS, claim_names[entry], namespace)

    return await eventually(find_claim)


async def allocate(cluster, namespace, name, *pods):
    """Act as an allocator: add the finalizer to a claim, allocate it, and reserve it for pods."""
    await cluster.patch(RESOURCE_CLAIMS, name, Merge({"metadata": {"finalizers": [FINALIZER]}}), namespace)
    entries = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
    status = {"allocation": allocation(), "reservedFor": entries}
    return await cluster.patch(RESOURCE_CLAIMS, name, Merge({"status": status}), namespace, subresource="status")


async def finish(cluster, namespace, name, phase="Succeeded"):
    await cluster.patch(PODS, name, Merge({"status": {"phase": phase}}), namespace, subresource="status")


async def wait_until_gone(cluster, namespace, name):
    async def is_gone():
        try:
            await cluster.get(RESOURCE_CLAIMS, name, namespace)
        except NotFound:
            return True
        return False

    return await eventually(is_gone)


async def test_a_pod_with_a_template_gets_a_claim_of_it(controlled_cluster, namespace):
    await controlled_cluster.create(
        RESOURCE_CLAIM_TEMPLATES, template("t", labels={"a": "b"}, annotations={"c": "d"}), namespace
    )
    owner = await create_pod(controlled_cluster, namespace, pod_with_claim("train"))
    created_claim = await claim_of_pod(controlled_cluster, namespace, "train")
    meta = created_claim.metadata
    assert meta.generate_name == "train-gpu-"
    assert meta.labels == {"a": "b"}
    assert meta.annotations == {"c": "d", POD_CLAIM_NAME: "gpu"}
    (reference,) = meta.owner_references
    assert (reference.api_version, reference.kind, reference.name) == ("v1", "Pod", "train")
    assert (reference.uid, reference.controller, reference.block_owner_deletion) == (owner.metadata.uid, True, None)
    assert created_claim.spec.devices.requests[0].exactly.device_class_name == "gpu.example.com"


async def test_a_pod_may_be_created_before_its_template(controlled_cluster, namespace):
    await create_pod(controlled_cluster, namespace, pod_with_claim("early"))
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("other"), namespace)
    await create_pod(controlled_cluster, namespace, pod_with_claim("later", source="other"))
    assert await claim_of_pod(controlled_cluster, namespace, "later"), (
        "no claim for the pod `later`, which the controller sees after the pod `early`"
    )
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    assert await claim_of_pod(controlled_cluster, namespace, "early")


async def test_a_deleted_claim_is_created_again(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    await create_pod(controlled_cluster, namespace, pod_with_claim("train"))
    deleted_claim = await claim_of_pod(controlled_cluster, namespace, "train")
    await controlled_cluster.delete(RESOURCE_CLAIMS, deleted_claim.metadata.name, namespace)
    attempts = itertools.count()

    async def find_new_claims():
        # The real controller retries only when the pod changes; ours retries at once.
        await controlled_cluster.patch(
            PODS, "train", Merge({"metadata": {"labels": {"attempt": str(next(attempts))}}}), namespace
        )
        claims = (await controlled_cluster.list(RESOURCE_CLAIMS, namespace)).items
        return [claim for claim in claims if claim.metadata.uid != deleted_claim.metadata.uid]

    (new_claim,) = await eventually(find_new_claims)
    assert new_claim.metadata.annotations[POD_CLAIM_NAME] == "gpu"


async def test_many_pods_get_one_claim_each(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    for number in range(20):
        await create_pod(controlled_cluster, namespace, pod_with_claim(f"p-{number}"))
    names = {(await claim_of_pod(controlled_cluster, namespace, f"p-{number}")).metadata.name for number in range(20)}
    page = await controlled_cluster.list(RESOURCE_CLAIMS, namespace)
    assert names == {item.metadata.name for item in page.items}
    assert len(names) == 20


async def test_a_bound_pod_is_added_to_reserved_for(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    owner = await create_pod(controlled_cluster, namespace, pod_with_claim("train"))
    created_claim = await claim_of_pod(controlled_cluster, namespace, "train")
    await allocate(controlled_cluster, namespace, created_claim.metadata.name)
    await controlled_cluster.bind("train", namespace, NODE)

    async def is_reserved():
        claim_ = await controlled_cluster.get(RESOURCE_CLAIMS, created_claim.metadata.name, namespace)
        return [consumer.uid for consumer in claim_.status.reserved_for] == [owner.metadata.uid]

    assert await eventually(is_reserved)


async def test_a_claim_is_deallocated_when_its_last_pod_finishes(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIMS, claim("shared"), namespace)
    claims = [{"name": "gpu", "resourceClaimName": "shared"}]
    pods = [
        await create_pod(controlled_cluster, namespace, pod(name, resourceClaims=claims)) for name in ("one", "two")
    ]
    for name in ("one", "two"):
        await controlled_cluster.bind(name, namespace, NODE)
    await allocate(controlled_cluster, namespace, "shared", *pods)
    await finish(controlled_cluster, namespace, "one")

    async def find_claim_of_pod_two():
        claim_ = await controlled_cluster.get(RESOURCE_CLAIMS, "shared", namespace)
        return [consumer.name for consumer in claim_.status.reserved_for] == ["two"] and claim_

    claim_of_pod_two = await eventually(find_claim_of_pod_two)
    assert claim_of_pod_two.status.allocation is not None
    assert claim_of_pod_two.metadata.finalizers == (FINALIZER,)
    await finish(controlled_cluster, namespace, "two", "Failed")

    async def is_deallocated():
        claim_ = await controlled_cluster.get(RESOURCE_CLAIMS, "shared", namespace)
        return claim_.status.allocation is None and not claim_.metadata.finalizers

    assert await eventually(is_deallocated)


class LatePodEvents(Embedded):
    """A cluster that holds back events of pods until `may_show_pods` is set, except the end of a streamed list."""

    def __init__(self):
        super().__init__()
        self.may_show_pods = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watch(self, resource, *args, **kwargs):
        async def hold_back(events):
            async for event in events:
                if not getattr(event, "initial_end", False):
                    await self.may_show_pods.wait()
                yield event

        async with super().watch(resource, *args, **kwargs) as events:
            yield hold_back(events) if resource.id == PODS.id else events


async def test_an_unseen_pod_keeps_its_reservation():
    cluster, namespace = LatePodEvents(), "default"
    controller = ClaimController(cluster)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(controller.run())
        await eventually(lambda: asyncio.sleep(0, controller._pods.is_synced))
        await cluster.create(RESOURCE_CLAIMS, claim("shared"), namespace)
        claims = [{"name": "gpu", "resourceClaimName": "shared"}]
        owner = await cluster.create(PODS, pod("one", resourceClaims=claims), namespace)
        deleted_pod = Pod(metadata=msgspec.structs.replace(owner.metadata, name="deleted", uid="uid-of-deleted-pod"))
        await allocate(cluster, namespace, "shared", owner, deleted_pod)

        async def find_released_claim():
            claim_ = await cluster.get(RESOURCE_CLAIMS, "shared", namespace)
            return len(claim_.status.reserved_for) < 2 and claim_

        released_claim = await eventually(find_released_claim)
        assert [consumer.uid for consumer in released_claim.status.reserved_for] == [owner.metadata.uid]
        assert released_claim.status.allocation is not None
        cluster.may_show_pods.set()
        running.cancel()


async def test_a_claim_missing_in_an_old_list_is_not_recreated():
    """The list was read before the claim was created, and the controller receives it afterwards."""
    cluster, namespace = Embedded(), "default"
    controller = ClaimController(cluster)
    old_version = (await cluster.list(RESOURCE_CLAIMS, namespace)).resource_version
    await cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    owner = await cluster.create(PODS, pod_with_claim("train"), namespace)
    await controller._execute(Create("gpu", "t"), namespace, owner)
    controller._on_claims(Batch((), old_version, complete=True))
    await controller._execute(Create("gpu", "t"), namespace, owner)
    (created_claim,) = (await cluster.list(RESOURCE_CLAIMS, namespace)).items
    await cluster.delete(RESOURCE_CLAIMS, created_claim.metadata.name, namespace)
    new_version = (await cluster.list(RESOURCE_CLAIMS, namespace)).resource_version
    controller._on_claims(Batch((), new_version, complete=True))
    await controller._execute(Create("gpu", "t"), namespace, owner)
    (new_claim,) = (await cluster.list(RESOURCE_CLAIMS, namespace)).items
    assert new_claim.metadata.uid != created_claim.metadata.uid, (
        "the claim that the newer list lacks was not created again"
    )


async def test_a_claim_is_deleted_when_its_pod_finishes(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIM_TEMPLATES, template("t"), namespace)
    owner = await create_pod(controlled_cluster, namespace, pod_with_claim("train"))
    created_claim = await claim_of_pod(controlled_cluster, namespace, "train")
    await controlled_cluster.bind("train", namespace, NODE)
    await allocate(controlled_cluster, namespace, created_claim.metadata.name, owner)
    await finish(controlled_cluster, namespace, "train")
    assert await wait_until_gone(controlled_cluster, namespace, created_claim.metadata.name)


async def test_a_deleted_claim_remains_until_its_pod_finishes(controlled_cluster, namespace):
    for name, claim_name in (("one", "shared"), ("two", "witness")):
        await controlled_cluster.create(RESOURCE_CLAIMS, claim(claim_name), namespace)
        body = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim_name}])
        owner = await create_pod(controlled_cluster, namespace, body)
        await controlled_cluster.bind(name, namespace, NODE)
        await allocate(controlled_cluster, namespace, claim_name, owner)
        await controlled_cluster.delete(RESOURCE_CLAIMS, claim_name, namespace)
    await finish(controlled_cluster, namespace, "two")
    assert await wait_until_gone(controlled_cluster, namespace, "witness"), "the claim of the finished pod still exists"
    claim_in_use = await controlled_cluster.get(RESOURCE_CLAIMS, "shared", namespace)
    assert claim_in_use.metadata.deletion_timestamp
    assert claim_in_use.status.allocation is not None
    await finish(controlled_cluster, namespace, "one")
    assert await wait_until_gone(controlled_cluster, namespace, "shared")


async def test_an_unused_deleted_claim_is_deallocated_and_removed(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIMS, claim("unused"), namespace)
    await allocate(controlled_cluster, namespace, "unused")
    await controlled_cluster.delete(RESOURCE_CLAIMS, "unused", namespace)
    assert await wait_until_gone(controlled_cluster, namespace, "unused")


async def test_a_consumer_of_an_unknown_kind_keeps_its_reservation(controlled_cluster, namespace):
    await controlled_cluster.create(RESOURCE_CLAIMS, claim("shared"), namespace)
    await controlled_cluster.patch(
        RESOURCE_CLAIMS, "shared", Merge({"metadata": {"finalizers": [FINALIZER]}}), namespace
    )
    robot = {"apiGroup": "example.com", "resource": "robots", "name": "r", "uid": "1"}
    missing_pod = {"resource": "pods", "name": "ghost", "uid": "2"}
    body = {"status": {"allocation": allocation(), "reservedFor": [robot, missing_pod]}}
    await controlled_cluster.patch(RESOURCE_CLAIMS, "shared", Merge(body), namespace, subresource="status")

    async def find_claim_without_pods():
        claim_ = await controlled_cluster.get(RESOURCE_CLAIMS, "shared", namespace)
        return [consumer.resource for consumer in claim_.status.reserved_for] == ["robots"] and claim_

    assert (await eventually(find_claim_without_pods)).status.allocation is not None


@pytest.mark.parametrize(
    ("pod_name", "entry", "expected"),
    [
        ("train", "gpu", "train-gpu-"),
        ("a" * 28, "b" * 28, "a" * 28 + "-" + "b" * 28 + "-"),
        ("a" * 60, "b" * 20, "a" * 42 + "-" + "b" * 14 + "-"),
        ("a" * 250, "b", "a" * 56 + "--"),
    ],
)
def test_generated_names_have_at_most_58_characters(pod_name, entry, expected):
    """An API server appends five random characters, and the whole name may have 63 characters."""
    assert generate_name(pod_name, entry) == expected
    assert len(expected) <= 58
