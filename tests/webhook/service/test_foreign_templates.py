"""Templates under drawbridge's names that another owner created, or whose signature is invalid."""

import asyncio

import pytest

from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.patch import Merge
from dra.footprint import footprint
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.template_cluster import Recorder, count, has, put, running, spec, translated
from webhook.claims import template


async def test_only_the_identity_of_a_foreign_template_is_cached():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{at}", "uid": f"u{at}"} for at in range(2_000)]
    many = {f"a.b/{at}": "x" for at in range(2_000)}
    meta = {"name": "theirs", "namespace": "default", "ownerReferences": owners, "finalizers": [*many], "labels": many, "annotations": many}  # fmt: skip
    cluster = Embedded()
    cluster.load([{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": {}}}])  # fmt: skip
    async with running(cluster) as controller:
        await controller._templates.wait_for_sync(PATIENCE)
        (kept,) = controller._templates.objects.values()
    assert (kept.metadata.name, kept.metadata.namespace) == ("theirs", "default")
    assert kept.metadata.uid
    assert footprint(kept) < 2_000


async def test_different_content_labelled_as_ours_is_replaced():
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster):
        await put(cluster, translated())
        await has(cluster, 1)


async def test_a_foreign_template_with_our_name_is_kept_and_reported(caplog):
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    squat["metadata"]["labels"] = {}
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster):
        await put(cluster, translated(), translated("b", 2))
        await has(cluster, 2, 8)
    assert "a template of another owner has a reserved name" in caplog.text


async def test_a_template_that_another_owner_creates_first_is_reported():
    class Raced(Recorder):
        async def create(self, resource, obj, namespace=None, **kwargs):
            if "managed-by" in str(obj) and not self.writes:
                squat = template.object_of(obj["metadata"]["name"], spec(8), "default")
                squat["metadata"]["labels"] = {}
                await super().create(resource, squat, namespace)
            return await super().create(resource, obj, namespace, **kwargs)

    cluster = Raced()
    async with running(cluster) as controller:
        await put(cluster, translated())
        await until(lambda: asyncio.sleep(0, count(controller, "taken")))
        await has(cluster, 8)
    assert [what for what, _ in cluster.writes] == ["create"]


async def test_a_template_held_by_a_finalizer_is_replaced_after_deletion():
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    squat["metadata"]["finalizers"] = ["tenant.dev/keep"]
    made = await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster) as controller:
        await put(cluster, translated())
        await until(lambda: asyncio.sleep(0, count(controller, "taken")))
        await asyncio.sleep(0.3)  # in this time a loop without a pause would write hundreds of times
        assert len(cluster.writes) <= 3
        off = Merge({"metadata": {"finalizers": None}})
        await cluster.patch(resources.RESOURCE_CLAIM_TEMPLATES, made["metadata"]["name"], off, "default")
        await has(cluster, 1)


async def test_a_template_signed_for_another_namespace_is_not_made():
    cluster = Recorder()
    async with running(cluster):
        await put(cluster, translated("stolen", 6, signed_for="team-b"), translated("good", 1))
        await has(cluster, 1)
    assert [what for what, _ in cluster.writes] == ["create"]


async def test_an_equal_template_of_another_owner_is_reused():
    cluster = Recorder()
    own = template.object_of(template.name_of(spec()), spec(), "default")
    own["metadata"]["labels"] = {}
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, own, "default")
    async with running(cluster):
        await put(cluster, translated(), translated("b", 2))
        await has(cluster, 1, 2)
    assert len(cluster.writes) == 1


@pytest.mark.parametrize("key", [b"x" * 32])
async def test_a_template_signed_with_another_key_is_not_made(key):
    cluster = Recorder()
    async with running(cluster):
        await put(cluster, translated("forged", 8, key), translated("good", 1))
        await has(cluster, 1)
    assert [what for what, _ in cluster.writes] == ["create"]


async def test_the_sweep_leaves_templates_that_drawbridge_did_not_make():
    cluster = Recorder()
    own = template.object_of("somebodys", spec(3), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, own, "default")
    async with running(cluster, grace=0.01):
        await put(cluster, translated())
        await has(cluster, 1, 3)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await has(cluster, 3)  # there was a sweep
