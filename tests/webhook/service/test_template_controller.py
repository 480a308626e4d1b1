"""The controller creates ResourceClaimTemplates of pods, recreates them, and deletes them after use."""

import asyncio

from cluster import resources
from cluster.errors import Unavailable
from dra.server import EVERYTHING
from tests.objects import device_class, typed
from tests.waiting import until
from tests.webhook.admission.reviews import NODE, SLICE
from tests.webhook.service.template_cluster import (
    ChangingState,
    RecordingCluster,
    create_pods,
    running,
    template_spec,
    translated_pod,
    wait_for_templates,
    write_count,
)
from webhook.claims import template
from webhook.service.pod_survey import LIVING
from webhook.state.features import Features
from webhook.state.inventory import Inventory


async def wait_until_no_pod_is_followed(controller):
    await until(lambda: asyncio.sleep(0, not controller._pods.objects))


async def test_a_template_is_created_once_for_many_pods():
    cluster = RecordingCluster()
    async with running(cluster):
        await create_pods(cluster, *(translated_pod(f"p{i}") for i in range(20)))
        await wait_for_templates(cluster, 1)
    assert [verb for verb, _ in cluster.writes] == ["create"]


async def test_pods_created_before_the_start_get_their_templates():
    cluster = RecordingCluster()
    await create_pods(cluster, translated_pod("a"), translated_pod("b", 2))
    async with running(cluster):
        await wait_for_templates(cluster, 1, 2)


async def test_a_deleted_template_is_recreated_while_a_pod_needs_it():
    cluster = RecordingCluster()
    async with running(cluster):
        await create_pods(cluster, translated_pod())
        await wait_for_templates(cluster, 1)
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(template_spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await wait_for_templates(cluster, 1)


async def has_created(cluster, number):
    return len(cluster.writes) >= number


async def test_a_deleted_template_is_recreated_for_an_unfollowed_pod():
    cluster = RecordingCluster()
    async with running(cluster) as controller:
        await create_pods(cluster, translated_pod())
        await wait_for_templates(cluster, 1)
        await create_pods(cluster, translated_pod("quiet", followed=False))
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await wait_until_no_pod_is_followed(controller)
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(template_spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await wait_for_templates(cluster, 1)
        await wait_until_no_pod_is_followed(controller)


async def test_an_unfollowed_pod_created_after_its_templates_deletion_gets_one():
    """A webhook replica admitted the pod before it saw that the template was deleted."""

    class Late(RecordingCluster):
        lists_after_deletion = 0

        async def list(self, resource, namespace=None, **kwargs):
            page = await super().list(resource, namespace, **kwargs)
            if resource.id == resources.PODS.id and self.lists_after_deletion:
                self.lists_after_deletion += 1
                if (
                    self.lists_after_deletion == 2
                ):  # the pod is created just after the first list that follows the deletion
                    await create_pods(self, translated_pod("late", followed=False))
            return page

    cluster = Late()
    async with running(cluster, second_survey_after=0.1) as controller:
        await create_pods(cluster, translated_pod())
        await wait_for_templates(cluster, 1)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await wait_until_no_pod_is_followed(controller)
        cluster.lists_after_deletion = 1
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(template_spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await wait_for_templates(cluster, 1)
    assert cluster.lists_after_deletion >= 3


async def test_an_unfollowed_pod_keeps_its_template():
    class CountingSurveys(RecordingCluster):
        surveys = 0

        async def list(self, resource, namespace=None, **kwargs):
            page = await super().list(resource, namespace, **kwargs)
            self.surveys += resource.id == resources.PODS.id and kwargs["fields"] == LIVING
            return page

    cluster = CountingSurveys()
    async with running(cluster, grace=0.05) as controller:
        await create_pods(cluster, translated_pod(), translated_pod("quiet", followed=False), translated_pod("q", 2))
        await wait_for_templates(cluster, 1, 2)
        for name in ("p", "q"):
            await cluster.delete(resources.PODS, name, "default", grace=0)
        await wait_for_templates(cluster, 1)
        await wait_until_no_pod_is_followed(controller)
        earlier_surveys = cluster.surveys
        await until(lambda: asyncio.sleep(0, cluster.surveys >= earlier_surveys + 3))
        await wait_for_templates(cluster, 1)
        await cluster.delete(resources.PODS, "quiet", "default", grace=0)
        await wait_for_templates(cluster)


async def test_no_unused_template_is_deleted_before_pods_are_listed():
    class PodsUnavailable(RecordingCluster):
        is_unavailable = True
        lists = 0

        async def list(self, resource, *args, **kwargs):
            if resource.id == resources.PODS.id and self.is_unavailable:
                self.lists += 1
                raise Unavailable("not now")
            return await super().list(resource, *args, **kwargs)

    cluster = PodsUnavailable()
    own_template = template.object_of(template.name_of(template_spec()), template_spec(), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, own_template, "default")
    await create_pods(cluster, translated_pod("quiet", followed=False))
    async with running(cluster, grace=0.01):
        await until(lambda: asyncio.sleep(0, cluster.lists >= 3))
        await wait_for_templates(cluster, 1)
        cluster.is_unavailable = False
        await create_pods(cluster, translated_pod("q", 2))
        await wait_for_templates(cluster, 1, 2)


async def test_a_withheld_template_is_created_once_the_mode_allows_it():
    cluster, state = RecordingCluster(), ChangingState("warn")
    await create_pods(cluster, translated_pod(followed=False))
    async with running(cluster, state) as controller:
        await until(lambda: asyncio.sleep(0, bool(controller._withheld)))
        assert cluster.writes == []
        state.set_mode("enforce")
        await wait_for_templates(cluster, 1)


SERVING_CLASS = typed(device_class("gpu.nvidia.com", extendedResourceName="nvidia.com/gpu"))
QUOTAS = {"quotas": {"default": frozenset({"requests.nvidia.com/gpu"})}}


async def test_a_template_is_created_once_a_quota_counts_its_claims():
    cluster, state = RecordingCluster(), ChangingState("enforce")
    state.set_mode("enforce", **QUOTAS)
    await create_pods(cluster, translated_pod())
    async with running(cluster, state) as controller:
        await until(lambda: asyncio.sleep(0, bool(controller._withheld and controller._withheld_with)))
        fleet = Inventory.gather([SERVING_CLASS], [SLICE], [NODE])
        state.set_mode("enforce", **QUOTAS, features=Features.from_server(EVERYTHING), fleet=fleet)
        await wait_for_templates(cluster, 1)


async def test_an_unused_template_is_deleted_after_the_grace_period():
    cluster = RecordingCluster()
    async with running(cluster, grace=0.15) as controller:
        await create_pods(cluster, translated_pod(), translated_pod("q", 2))
        await wait_for_templates(cluster, 1, 2)
        await cluster.delete(resources.PODS, "q", "default", grace=0)
        await wait_for_templates(cluster, 1)  # the same sweep kept the other template, because its pod exists
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await wait_for_templates(cluster)
        await until(lambda: asyncio.sleep(0, write_count(controller, "swept") == 2))
    assert write_count(controller, "created") == 2
