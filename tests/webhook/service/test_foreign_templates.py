"""Templates under drawbridge's names that another owner created, or whose signature is invalid."""

import asyncio

import pytest

from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.patch import Merge
from dra.footprint import footprint
from tests.limits import PATIENCE
from tests.waiting import until
from tests.webhook.service.template_cluster import (
    RecordingCluster,
    create_pods,
    running,
    template_spec,
    translated_pod,
    wait_for_templates,
    write_count,
)
from webhook.claims import template


async def test_only_the_identity_of_a_foreign_template_is_cached():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{index}", "uid": f"u{index}"} for index in range(2_000)]
    labels = {f"a.b/{index}": "x" for index in range(2_000)}
    meta = {"name": "theirs", "namespace": "default", "ownerReferences": owners, "finalizers": [*labels], "labels": labels, "annotations": labels}  # fmt: skip
    cluster = Embedded()
    cluster.load([{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": {}}}])  # fmt: skip
    async with running(cluster) as controller:
        await controller._templates.wait_for_sync(PATIENCE)
        (cached,) = controller._templates.objects.values()
    assert (cached.metadata.name, cached.metadata.namespace) == ("theirs", "default")
    assert cached.metadata.uid
    assert footprint(cached) < 2_000


async def test_a_foreign_template_with_our_name_is_kept_and_reported(caplog):
    cluster = RecordingCluster()
    foreign = template.object_of(template.name_of(template_spec()), template_spec(8), "default")
    foreign["metadata"]["labels"] = {}
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, foreign, "default")
    async with running(cluster):
        await create_pods(cluster, translated_pod(), translated_pod("b", 2))
        await wait_for_templates(cluster, 2, 8)
    assert "a template of another owner has a reserved name" in caplog.text


async def test_a_template_that_another_owner_creates_first_is_reported():
    class Raced(RecordingCluster):
        async def create(self, resource, obj, namespace=None, **kwargs):
            if "managed-by" in str(obj) and not self.writes:
                foreign = template.object_of(obj["metadata"]["name"], template_spec(8), "default")
                foreign["metadata"]["labels"] = {}
                await super().create(resource, foreign, namespace)
            return await super().create(resource, obj, namespace, **kwargs)

    cluster = Raced()
    async with running(cluster) as controller:
        await create_pods(cluster, translated_pod())
        await until(lambda: asyncio.sleep(0, write_count(controller, "taken")))
        await wait_for_templates(cluster, 8)
    assert [verb for verb, _ in cluster.writes] == ["create"]


async def test_a_template_held_by_a_finalizer_is_replaced_after_deletion():
    cluster = RecordingCluster()
    foreign = template.object_of(template.name_of(template_spec()), template_spec(8), "default")
    foreign["metadata"]["finalizers"] = ["tenant.dev/keep"]
    stored = await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, foreign, "default")
    async with running(cluster) as controller:
        await create_pods(cluster, translated_pod())
        await until(lambda: asyncio.sleep(0, write_count(controller, "taken")))
        await asyncio.sleep(0.3)  # in this time a loop without a pause would write hundreds of times
        assert len(cluster.writes) <= 3
        no_finalizers = Merge({"metadata": {"finalizers": None}})
        await cluster.patch(resources.RESOURCE_CLAIM_TEMPLATES, stored["metadata"]["name"], no_finalizers, "default")
        await wait_for_templates(cluster, 1)


@pytest.mark.parametrize("signature", [{"signed_for": "team-b"}, {"key": b"x" * 32}], ids=["namespace", "key"])
async def test_a_template_signed_for_another_namespace_or_by_another_key_is_not_created(signature):
    cluster = RecordingCluster()
    async with running(cluster):
        await create_pods(cluster, translated_pod("forged", 8, **signature), translated_pod("good", 1))
        await wait_for_templates(cluster, 1)
    assert [verb for verb, _ in cluster.writes] == ["create"]
