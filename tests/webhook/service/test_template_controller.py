"""ResourceClaimTemplates of pods: created, recreated and deleted after use."""

import asyncio

import pytest

from cluster import resources
from cluster.errors import Unavailable
from dra.server import EVERYTHING
from tests.objects import device_class, typed
from tests.waiting import until
from tests.webhook.admission.reviews import NODE, SLICE
from tests.webhook.service.template_cluster import Changing, Recorder, count, has, put, running, spec, translated
from webhook.claims import template
from webhook.service.pod_survey import LIVING
from webhook.state.features import Features
from webhook.state.inventory import Inventory


async def follows_no_pod(controller):
    await until(lambda: asyncio.sleep(0, not controller._pods.objects))


async def test_a_template_is_created_once_for_many_pods():
    cluster = Recorder()
    async with running(cluster):
        await put(cluster, *(translated(f"p{i}") for i in range(20)))
        await has(cluster, 1)
    assert [what for what, _ in cluster.writes] == ["create"]


async def test_pods_created_before_the_start_get_their_templates():
    cluster = Recorder()
    await put(cluster, translated("a"), translated("b", 2))
    async with running(cluster):
        await has(cluster, 1, 2)


async def test_a_deleted_template_comes_back_while_it_is_needed():
    cluster = Recorder()
    async with running(cluster):
        await put(cluster, translated())
        await has(cluster, 1)
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await has(cluster, 1)


async def has_created(cluster, number):
    return len(cluster.writes) >= number


async def test_a_deleted_template_is_recreated_for_an_unfollowed_pod():
    cluster = Recorder()
    async with running(cluster) as controller:
        await put(cluster, translated())
        await has(cluster, 1)
        await put(cluster, translated("quiet", followed=False))
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await follows_no_pod(controller)
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await has(cluster, 1)
        await follows_no_pod(controller)


async def test_a_late_unfollowed_pod_gets_a_template_after_its_deletion():
    """A webhook replica admitted the pod before it saw that the template was deleted."""

    class Late(Recorder):
        gone = 0

        async def list(self, resource, namespace=None, **kwargs):
            page = await super().list(resource, namespace, **kwargs)
            if resource.id == resources.PODS.id and self.gone:
                self.gone += 1
                if self.gone == 2:  # the list after the deletion has just missed this pod
                    await put(self, translated("late", followed=False))
            return page

    cluster = Late()
    async with running(cluster, second_survey_after=0.1) as controller:
        await put(cluster, translated())
        await has(cluster, 1)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await follows_no_pod(controller)
        cluster.gone = 1
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(spec()), "default")
        await until(lambda: has_created(cluster, 2))
        await has(cluster, 1)
    assert cluster.gone >= 3


async def test_a_pod_that_is_not_followed_keeps_its_template():
    class Looking(Recorder):
        looks = 0

        async def list(self, resource, namespace=None, **kwargs):
            page = await super().list(resource, namespace, **kwargs)
            self.looks += resource.id == resources.PODS.id and kwargs["fields"] == LIVING
            return page

    cluster = Looking()
    async with running(cluster, grace=0.05) as controller:
        await put(cluster, translated(), translated("quiet", followed=False), translated("q", 2))
        await has(cluster, 1, 2)
        for name in ("p", "q"):
            await cluster.delete(resources.PODS, name, "default", grace=0)
        await has(cluster, 1)
        await follows_no_pod(controller)
        seen = cluster.looks
        await until(lambda: asyncio.sleep(0, cluster.looks >= seen + 3))
        await has(cluster, 1)
        await cluster.delete(resources.PODS, "quiet", "default", grace=0)
        await has(cluster)


async def test_no_template_is_swept_before_pods_are_listed():
    class Blind(Recorder):
        blind = True
        lists = 0

        async def list(self, resource, *args, **kwargs):
            if resource.id == resources.PODS.id and self.blind:
                self.lists += 1
                raise Unavailable("not now")
            return await super().list(resource, *args, **kwargs)

    cluster = Blind()
    ours = template.object_of(template.name_of(spec()), spec(), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, ours, "default")
    await put(cluster, translated("quiet", followed=False))
    async with running(cluster, grace=0.01):
        await until(lambda: asyncio.sleep(0, cluster.lists >= 3))
        await has(cluster, 1)
        cluster.blind = False
        await put(cluster, translated("q", 2))
        await has(cluster, 1, 2)


async def test_a_withheld_template_is_created_once_its_mode_allows():
    cluster, world = Recorder(), Changing("warn")
    await put(cluster, translated(followed=False))
    async with running(cluster, world) as controller:
        await until(lambda: asyncio.sleep(0, bool(controller._withheld)))
        assert cluster.writes == []
        world.enter("enforce")
        await has(cluster, 1)


SERVING = typed(device_class("gpu.nvidia.com", extendedResourceName="nvidia.com/gpu"))
QUOTAS = {"quotas": {"default": frozenset({"requests.nvidia.com/gpu"})}}


@pytest.mark.parametrize(("mode", "fields"), [("off", {}), ("observe", {}), ("warn", {}), ("enforce", QUOTAS)])
async def test_a_template_is_created_only_when_the_webhook_allows_it(mode, fields):
    cluster, world = Recorder(), Changing("off")
    world.enter(mode, **fields)
    async with running(cluster, world):
        await put(cluster, translated())
        await settle()
        assert cluster.writes == []
        world.enter("enforce")
        await has(cluster, 1)


async def test_a_template_withheld_for_a_quota_is_created_once_a_class_counts_its_claims():
    cluster, world = Recorder(), Changing("enforce")
    world.enter("enforce", **QUOTAS)
    await put(cluster, translated())
    async with running(cluster, world) as controller:
        await until(lambda: asyncio.sleep(0, bool(controller._withheld and controller._withheld_with)))
        fleet = Inventory.gather([SERVING], [SLICE], [NODE])
        world.enter("enforce", **QUOTAS, features=Features.from_server(EVERYTHING), fleet=fleet)
        await has(cluster, 1)


async def settle():
    """Run the loop until no task is ready."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_an_unused_template_is_deleted_after_the_grace_period():
    cluster = Recorder()
    async with running(cluster, grace=0.15) as controller:
        await put(cluster, translated(), translated("q", 2))
        await has(cluster, 1, 2)
        await cluster.delete(resources.PODS, "q", "default", grace=0)
        await has(cluster, 1)  # the same sweep kept the other template, because its pod exists
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await has(cluster)
        await until(lambda: asyncio.sleep(0, count(controller, "swept") == 2))
    assert count(controller, "created") == 2
