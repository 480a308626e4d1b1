import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import msgspec
import pytest

from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Gone, Invalid, NotFound, Unavailable
from cluster.patch import Merge
from dra.footprint import footprint
from dra.stock import Stock
from runtime.controllers import events
from tests.limits import PATIENCE
from tests.objects import workload
from tests.waiting import until
from tests.webhook.admission.test_decide import CLASS, NODE, SLICE, gpu_pod
from webhook.claims import template
from webhook.names import ORIGINAL, WAITS_LABEL
from webhook.service.metrics import WebhookMetrics
from webhook.service.pod_survey import LIVING
from webhook.service.template_controller import Templates
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.inventory import Inventory
from webhook.state.state import State

KEY = b"k" * 32
STATE = State(fleet=Inventory.gather([CLASS], [SLICE], [NODE]), keys=(KEY,))


def spec(count=1):
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count},
    }
    return {"spec": {"devices": {"requests": [request]}}}


def translated(name="p", count=1, key=KEY, namespace="default", signed_for="", *, followed=True):
    """A pod as the webhook leaves it: with a label that has it followed, where the template was not there."""
    wanted = spec(count)
    made = template.name_of(wanted)
    value = gpu_pod(limits={}, name=name, namespace=namespace)
    asked = json.dumps({"containers": {"main": {"nvidia.com/gpu": str(count)}}})
    value["metadata"]["annotations"] = {ORIGINAL: asked}
    if followed:
        value["metadata"]["labels"] = {WAITS_LABEL: "true"}
    signed = template.sign({made: wanted}, key, template.identify_raw(value, signed_for or namespace))
    value["metadata"]["annotations"]["drawbridge.dev/templates"] = signed
    value["spec"]["resourceClaims"] = [{"name": "drawbridge-gpu", "resourceClaimTemplateName": made}]
    return value


class Recorder(Embedded):
    """Counts writes of templates, and dies at one of them if told to."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.dies_at, self.after = 0, False

    async def _write(self, what, name, go):
        self.writes.append((what, name))
        dies = len(self.writes) == self.dies_at
        if dies and not self.after:
            raise Killed
        result = await go()
        if dies:
            raise Killed
        return result

    async def create(self, resource, obj, namespace=None, **kwargs):
        go = partial(super().create, resource, obj, namespace, **kwargs)
        if resource.id != resources.RESOURCE_CLAIM_TEMPLATES.id or "managed-by" not in str(obj):
            return await go()
        return await self._write("create", obj["metadata"]["name"], go)

    async def delete(self, resource, name, *args, **kwargs):
        go = partial(super().delete, resource, name, *args, **kwargs)
        return await (self._write("delete", name, go) if kwargs.get("uid") else go())


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


@asynccontextmanager
async def running(cluster, state=STATE, **settings):
    settings = {"grace": 3600.0, "sweep_every": 0.02, "again_every": 0.02} | settings
    now = (lambda: state.now) if isinstance(state, Changing) else lambda: state
    controller = Templates(
        cluster, now, events.Recorder(cluster, "drawbridge-controller"), WebhookMetrics(), **settings
    )
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def templates(cluster):
    page = await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)
    return {item.metadata.name: item.spec.spec.devices.requests[0].exactly.count for item in page.items}


async def has(cluster, *wanted):
    await until(lambda: _has(cluster, wanted))


async def _has(cluster, wanted):
    return sorted((await templates(cluster)).values()) == sorted(wanted)


def count(controller, action):
    return controller._metrics.registry.get_sample_value("drawbridge_template_writes_total", {"action": action})


async def follows_no_pod(controller):
    await until(lambda: asyncio.sleep(0, not controller._pods.objects))


async def put(cluster, *pods):
    for pod in pods:
        await cluster.create(resources.PODS.raw, pod, pod["metadata"].get("namespace", "default"))


async def test_a_template_is_there_soon_after_its_pod_and_only_once():
    cluster = Recorder()
    async with running(cluster):
        await put(cluster, *(translated(f"p{i}") for i in range(20)))
        await has(cluster, 1)
    assert [what for what, _ in cluster.writes] == ["create"]


async def test_of_a_template_that_is_not_ours_its_identity_is_kept_and_nothing_else():
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


async def test_pods_that_were_there_before_the_start_get_theirs():
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
        await until(lambda: _count(cluster, 2))
        await has(cluster, 1)


async def _count(cluster, number):
    return len(cluster.writes) >= number


async def test_a_pod_that_found_its_template_is_not_followed_and_gets_another_when_that_one_goes():
    cluster = Recorder()
    async with running(cluster) as controller:
        await put(cluster, translated())
        await has(cluster, 1)
        await put(cluster, translated("quiet", followed=False))
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await follows_no_pod(controller)
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(spec()), "default")
        await until(lambda: _count(cluster, 2))
        await has(cluster, 1)
        await follows_no_pod(controller)


async def test_a_pod_that_comes_after_the_template_has_gone_and_does_not_say_that_it_waits_is_found():
    """A webhook admitted the pod before it saw that the template was deleted."""

    class Late(Recorder):
        gone = 0

        async def list(self, resource, namespace=None, **kwargs):
            page = await super().list(resource, namespace, **kwargs)
            if resource.id == resources.PODS.id and self.gone:
                self.gone += 1
                if self.gone == 2:  # the look that follows the deletion has just missed it
                    await put(self, translated("late", followed=False))
            return page

    cluster = Late()
    async with running(cluster, second_look_after=0.1) as controller:
        await put(cluster, translated())
        await has(cluster, 1)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await follows_no_pod(controller)
        cluster.gone = 1
        await cluster.delete(resources.RESOURCE_CLAIM_TEMPLATES, template.name_of(spec()), "default")
        await until(lambda: _count(cluster, 2))
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


async def test_nothing_is_swept_before_the_pods_were_seen():
    class Blind(Recorder):
        blind = True
        asked = 0

        async def list(self, resource, *args, **kwargs):
            if resource.id == resources.PODS.id and self.blind:
                self.asked += 1
                raise Unavailable("not now")
            return await super().list(resource, *args, **kwargs)

    cluster = Blind()
    ours = template.object_of(template.name_of(spec()), spec(), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, ours, "default")
    await put(cluster, translated("quiet", followed=False))
    async with running(cluster, grace=0.01):
        await until(lambda: asyncio.sleep(0, cluster.asked >= 3))
        await has(cluster, 1)
        cluster.blind = False
        await put(cluster, translated("q", 2))
        await has(cluster, 1, 2)


async def test_a_list_that_is_too_long_for_its_token_is_begun_anew():
    class Slow(Recorder):
        tries = 0

        async def list(self, resource, namespace=None, *, limit=500, more="", **kwargs):
            if resource.id == resources.PODS.id:
                self.tries += 1
                if self.tries == 2:
                    raise Gone("the token is too old")
                limit = 1
            return await super().list(resource, namespace, limit=limit, more=more, **kwargs)

    cluster = Slow()
    await put(cluster, translated("a", followed=False), translated("b", 2, followed=False))
    async with running(cluster):
        await has(cluster, 1, 2)


async def test_a_pod_that_was_found_waiting_and_is_not_allowed_now_gets_its_template_when_it_is():
    cluster, world = Recorder(), Changing("warn")
    await put(cluster, translated(followed=False))
    async with running(cluster, world) as controller:
        await until(lambda: asyncio.sleep(0, bool(controller._withheld)))
        assert cluster.writes == []
        world.enter("enforce")
        await has(cluster, 1)


async def test_other_content_that_is_labelled_as_ours_is_replaced():
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster):
        await put(cluster, translated())
        await has(cluster, 1)


async def test_another_owners_template_under_a_reserved_name_is_kept_and_reported(caplog):
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    squat["metadata"]["labels"] = {}
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster):
        await put(cluster, translated(), translated("b", 2))
        await has(cluster, 2, 8)
    assert "a template of another owner has a reserved name" in caplog.text


async def test_a_template_that_a_finalizer_keeps_is_waited_for_and_replaced_when_it_goes():
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec()), spec(8), "default")
    squat["metadata"]["finalizers"] = ["tenant.dev/keep"]
    made = await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    async with running(cluster) as controller:
        await put(cluster, translated())
        await until(lambda: asyncio.sleep(0, count(controller, "taken")))
        await asyncio.sleep(0.3)  # a loop that does not wait writes hundreds of times meanwhile
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


class Changing:
    """A state that a test can exchange."""

    def __init__(self, mode):
        self.enter(mode)

    def enter(self, mode, **fields):
        labels = {"default": {"drawbridge.dev/mode": mode}}
        self.now = msgspec.structs.replace(STATE, namespaces=labels, **fields)


QUOTAS = {"quotas": {"default": frozenset({"requests.nvidia.com/gpu"})}}


@pytest.mark.parametrize(("mode", "fields"), [("off", {}), ("observe", {}), ("warn", {}), ("enforce", QUOTAS)])
async def test_nothing_is_made_that_the_webhook_would_not_allow_now_and_it_is_made_when_it_would(mode, fields):
    cluster, world = Recorder(), Changing("off")
    world.enter(mode, **fields)
    async with running(cluster, world):
        await put(cluster, translated())
        await settle()
        assert cluster.writes == []
        world.enter("enforce")
        await has(cluster, 1)


async def settle():
    """Let everything that is ready run."""
    for _ in range(200):
        await asyncio.sleep(0)


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


async def test_an_unused_template_is_deleted_after_the_grace_period_and_not_before():
    cluster = Recorder()
    async with running(cluster, grace=0.15) as controller:
        await put(cluster, translated(), translated("q", 2))
        await has(cluster, 1, 2)
        await cluster.delete(resources.PODS, "q", "default", grace=0)
        await has(cluster, 1)  # the sweep that took the one left the other: a pod that lives keeps its template
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await has(cluster)
        await until(lambda: asyncio.sleep(0, count(controller, "swept") == 2))
    assert count(controller, "created") == 2


async def test_for_a_workload_whose_pods_would_be_refused_nothing_is_made_until_they_would_not():
    """Our own webhook would turn such a template back; when there is a node that serves it, it is made ahead of the pods."""
    stock = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])
    state = Changing("enforce")
    state.enter("enforce", stock=stock)  # its node has four
    cluster = Recorder()
    async with running(cluster, state):
        await put_workloads(cluster, "impossible", 8)
        await put_workloads(cluster, "possible", 2)
        await has(cluster, 2)
        assert len(cluster.writes) == 1
        lenient = Configuration(msgspec.structs.replace(DEFAULT, impossible="warn"))
        state.enter("enforce", stock=stock, configuration=lenient)
        await has(cluster, 2, 8)


async def test_a_workload_that_is_refused_for_want_of_a_class_is_kept_for_an_administrator_until_there_is_one():
    state = Changing("enforce")
    state.enter("enforce", stock=Stock.of(slices=[SLICE], classes=[], nodes=[NODE]))
    cluster = Recorder()
    async with running(cluster, state) as controller:
        await put_workloads(cluster, "web", 2)
        await put_workloads(cluster, "gone", 2)

        async def are_kept():
            return {key for _, (_, key) in controller.refused} == {"web", "gone"}

        await until(are_kept)
        assert {(one.code, "administrator" in one.remedy) for one in controller.refused.values()} == {("R021", True)}
        await cluster.delete(resources.DEPLOYMENTS, "gone", "default")
        stock = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])
        lenient = Configuration(msgspec.structs.replace(DEFAULT, impossible="warn"))
        state.enter("enforce", stock=stock, configuration=lenient)
        await has(cluster, 2)
        assert controller.refused == {}


async def put_workloads(cluster, name, count):
    spec = {"template": {"spec": gpu_pod(limits={"nvidia.com/gpu": str(count)})["spec"]}}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    await cluster.create(resources.DEPLOYMENTS.raw, made, "default")


async def test_the_sweep_leaves_templates_that_drawbridge_did_not_make():
    cluster = Recorder()
    own = template.object_of("somebodys", spec(3), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, own, "default")
    async with running(cluster, grace=0.01):
        await put(cluster, translated())
        await has(cluster, 1, 3)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await has(cluster, 3)  # there was a sweep


def limited_deployment(**limits):
    return workload("Deployment", "d", gpu_pod(limits=limits)["spec"], labels={"a": "b"})


async def test_the_template_of_a_workload_is_made_before_its_first_pod():
    cluster = Recorder()
    async with running(cluster, grace=0.05):
        await cluster.create(resources.DEPLOYMENTS, limited_deployment(**{"nvidia.com/gpu": "2"}), "default")
        await put(cluster, translated())
        await has(cluster, 1, 2)
        await cluster.delete(resources.PODS, "p", "default", grace=0)
        await has(cluster, 2)  # a sweep left it
        await cluster.delete(resources.DEPLOYMENTS, "d", "default")
        await has(cluster)


async def test_a_template_that_cannot_be_created_is_reported_and_delays_no_others():
    class Undigested(Recorder):
        async def create(self, resource, obj, *args, **kwargs):
            if obj["metadata"]["name"] == template.name_of(spec(3)):
                raise RecursionError("nested too deeply")
            return await super().create(resource, obj, *args, **kwargs)

    cluster = Undigested()
    async with running(cluster) as controller:
        await put(cluster, translated("hostile", 3), translated("a", 1), translated("b", 2))
        await has(cluster, 1, 2)
        assert f"default/{template.name_of(spec(3))}: RecursionError" in str(controller.quarantine)


async def test_for_a_workload_that_will_not_be_translated_nothing_is_made():
    cluster = Recorder()
    observing = msgspec.structs.replace(
        STATE,
        configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="observe")),
        namespaces={"kube-system": {"drawbridge.dev/mode": "enforce"}},
    )
    async with running(cluster, observing):
        await cluster.create(resources.DEPLOYMENTS, limited_deployment(**{"nvidia.com/gpu": "2"}), "default")
        await put(cluster, translated(namespace="kube-system"))
        await has(cluster, 1)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, 5))
async def test_a_kill_at_any_write_is_repaired_by_the_next_start(write, after):
    """Four writes are due: two creations, and a deletion and a creation for a name that holds something else."""
    cluster = Recorder()
    squat = template.object_of(template.name_of(spec(3)), spec(9), "default")
    await cluster.create(resources.RESOURCE_CLAIM_TEMPLATES.raw, squat, "default")
    await put(cluster, *(translated(f"p{n}", n) for n in (1, 2, 3)))
    cluster.writes.clear()
    cluster.dies_at, cluster.after = write, after
    recorder = events.Recorder(cluster, "drawbridge-controller")
    controller = Templates(cluster, lambda: STATE, recorder, WebhookMetrics(), sweep_every=0.02)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  the kill arrives inside a group
        await controller.run()
    assert caught.group_contains(Killed) or caught.errisinstance(Killed)
    cluster.dies_at = 0
    async with running(cluster):
        await has(cluster, 1, 2, 3)


async def test_an_api_server_that_fails_for_a_while_is_waited_for():
    class Failing(Recorder):
        failures = 3

        async def create(self, resource, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id and self.failures:
                self.failures -= 1
                raise Unavailable("not now")
            return await super().create(resource, *args, **kwargs)

    cluster = Failing()
    async with running(cluster):
        await put(cluster, translated())
        await has(cluster, 1)


async def test_pods_whose_template_is_refused_are_told_why_and_once():
    class Refusing(Recorder):
        refuses = True

        async def create(self, resource, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id and self.refuses:
                raise Invalid("ValidatingAdmissionPolicy 'labels' denied request: no owner")
            return await super().create(resource, *args, **kwargs)

    cluster = Refusing()

    async def told():
        page = await cluster.list(resources.EVENTS)
        return {(item.involved_object.name, item.reason, item.message) for item in page.items}

    why = "its template cannot be made: ValidatingAdmissionPolicy 'labels' denied request: no owner"
    async with running(cluster) as controller:
        await put(cluster, translated("p1"), translated("p2"))
        await until(lambda: _is(told, {(name, "FailedTemplateCreation", why) for name in ("p1", "p2")}))
        for key in controller._users.in_use():
            controller._queue.add(key)
        await asyncio.sleep(0.1)
        assert len((await cluster.list(resources.EVENTS)).items) == 2
        cluster.refuses = False
        await has(cluster, 1)


async def _is(ask, wanted):
    return await ask() == wanted


async def test_a_namespace_that_is_gone_is_given_up():
    class Gone(Recorder):
        tries = 0

        async def create(self, resource, obj, *args, **kwargs):
            if resource.id == resources.RESOURCE_CLAIM_TEMPLATES.id:
                self.tries += 1
                raise NotFound("namespaces not found")
            return await super().create(resource, obj, *args, **kwargs)

    cluster = Gone()
    async with running(cluster):
        for number in range(1, 6):  # each is tried when the one before it has been given up
            await put(cluster, translated(f"p{number}", number))
            await until(lambda number=number: asyncio.sleep(0, cluster.tries >= number))
    assert cluster.tries == 5
