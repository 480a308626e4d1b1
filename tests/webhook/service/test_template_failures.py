"""The template controller when the API server refuses or fails, and after a kill."""

import asyncio

import pytest

from cluster import resources
from cluster.controllers import event_recorder
from cluster.errors import Gone, Invalid, NotFound, Unavailable
from tests.waiting import until
from tests.webhook.service.template_cluster import (
    STATE,
    Killed,
    RecordingCluster,
    create_pods,
    running,
    template_spec,
    translated_pod,
    wait_for_templates,
)
from webhook.claims import template
from webhook.service.metrics import WebhookMetrics
from webhook.service.template_controller import Templates


async def test_a_list_with_an_expired_continue_token_is_restarted():
    class ExpiringToken(RecordingCluster):
        tries = 0

        async def list(self, resource, namespace=None, *, limit=500, more="", **kwargs):
            if resource.id == resources.PODS.id:
                self.tries += 1
                if self.tries == 2:
                    raise Gone("the token is too old")
                limit = 1
            return await super().list(resource, namespace, limit=limit, more=more, **kwargs)

    cluster = ExpiringToken()
    await create_pods(cluster, translated_pod("a", followed=False), translated_pod("b", 2, followed=False))
    async with running(cluster):
        await wait_for_templates(cluster, 1, 2)


async def test_a_template_that_fails_is_quarantined_and_delays_no_others():
    class FailingForOneTemplate(RecordingCluster):
        async def create(self, resource, obj, *args, **kwargs):
            if obj["metadata"]["name"] == template.name_of(template_spec(3)):
                raise RecursionError("nested too deeply")
            return await super().create(resource, obj, *args, **kwargs)

    cluster = FailingForOneTemplate()
    async with running(cluster) as controller:
        await create_pods(cluster, translated_pod("hostile", 3), translated_pod("a", 1), translated_pod("b", 2))
        await wait_for_templates(cluster, 1, 2)
        assert f"default/{template.name_of(template_spec(3))}: RecursionError" in str(controller.quarantine)


@pytest.mark.parametrize("after_write", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
async def test_the_next_start_repairs_a_kill_at_any_write(write, after_write):
    """Four writes are due: two creations, and a deletion and a creation for a name with other content."""
    cluster = RecordingCluster()
    other_content = template.object_of(template.name_of(template_spec(3)), template_spec(9), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, other_content, "default")
    await create_pods(cluster, *(translated_pod(f"p{n}", n) for n in (1, 2, 3)))
    cluster.writes.clear()
    cluster.dies_at, cluster.dies_after_write = write, after_write
    recorder = event_recorder.Recorder(cluster, "drawbridge-controller")
    controller = Templates(cluster, lambda: STATE, recorder, WebhookMetrics(), sweep_every=0.02)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  the kill arrives inside a group
        await controller.run()
    assert caught.group_contains(Killed) or caught.errisinstance(Killed)
    cluster.dies_at = 0
    async with running(cluster):
        await wait_for_templates(cluster, 1, 2, 3)


async def test_a_failing_api_server_is_retried_until_it_recovers():
    class Failing(RecordingCluster):
        failures = 3

        async def create(self, resource, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id and self.failures:
                self.failures -= 1
                raise Unavailable("not now")
            return await super().create(resource, *args, **kwargs)

    cluster = Failing()
    async with running(cluster):
        await create_pods(cluster, translated_pod())
        await wait_for_templates(cluster, 1)


async def test_each_pod_with_a_refused_template_gets_one_event():
    class Refusing(RecordingCluster):
        refuses = True

        async def create(self, resource, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id and self.refuses:
                raise Invalid("ValidatingAdmissionPolicy 'labels' denied request: no owner")
            return await super().create(resource, *args, **kwargs)

    cluster = Refusing()

    async def reported_events():
        page = await cluster.list(resources.EVENTS)
        return {(item.involved_object.name, item.reason, item.message) for item in page.items}

    message = "a template for this pod cannot be created: ValidatingAdmissionPolicy 'labels' denied request: no owner"
    async with running(cluster) as controller:
        await create_pods(cluster, translated_pod("p1"), translated_pod("p2"))
        await until(
            lambda: returns(reported_events, {(name, "FailedTemplateCreation", message) for name in ("p1", "p2")})
        )
        for key in controller._users.in_use():
            controller._queue.add(key)
        await asyncio.sleep(0.1)
        assert len((await cluster.list(resources.EVENTS)).items) == 2
        cluster.refuses = False
        await wait_for_templates(cluster, 1)


async def returns(function, expected):
    return await function() == expected


async def test_templates_of_a_deleted_namespace_are_given_up():
    class NamespaceGone(RecordingCluster):
        tries = 0

        async def create(self, resource, obj, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id:
                self.tries += 1
                raise NotFound("namespaces not found")
            return await super().create(resource, obj, *args, **kwargs)

    cluster = NamespaceGone()
    async with running(cluster):
        for number in range(1, 6):  # the controller tries each template once, one after the other
            await create_pods(cluster, translated_pod(f"p{number}", number))
            await until(lambda number=number: asyncio.sleep(0, cluster.tries >= number))
    assert cluster.tries == 5
