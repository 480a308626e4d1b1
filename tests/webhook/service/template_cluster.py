"""The template controller on an embedded cluster that records writes, and the pods and workloads that it serves."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from cluster import resources
from cluster.embedded.embedded import Embedded
from runtime.controllers import events
from tests.waiting import until
from tests.webhook.admission.reviews import CLASS, NODE, SLICE, gpu_pod
from webhook.claims import template
from webhook.names import ORIGINAL, WAITS_LABEL
from webhook.service.metrics import WebhookMetrics
from webhook.service.template_controller import Templates
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
    """Return a pod as the webhook leaves it; `followed` adds the label that selects the pod for the controller."""
    wanted = spec(count)
    made = template.name_of(wanted)
    value = gpu_pod(limits={}, name=name, namespace=namespace)
    original = json.dumps({"containers": {"main": {"nvidia.com/gpu": str(count)}}})
    value["metadata"]["annotations"] = {ORIGINAL: original}
    if followed:
        value["metadata"]["labels"] = {WAITS_LABEL: "true"}
    signed = template.sign({made: wanted}, key, template.identify_raw(value, signed_for or namespace))
    value["metadata"]["annotations"]["drawbridge.dev/templates"] = signed
    value["spec"]["resourceClaims"] = [{"name": "drawbridge-gpu", "resourceClaimTemplateName": made}]
    return value


class Recorder(Embedded):
    """A cluster that counts writes of templates, and is killed at one of them if `dies_at` is set."""

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
    """Stands for kill -9: no code catches this exception."""


@asynccontextmanager
async def running(cluster, state=STATE, **settings):
    settings = {"grace": 3600.0, "sweep_every": 0.02, "retry_every": 0.02} | settings
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
    await until(lambda: has_templates(cluster, wanted))


async def has_templates(cluster, wanted):
    return sorted((await templates(cluster)).values()) == sorted(wanted)


def count(controller, action):
    return controller._metrics.registry.get_sample_value("drawbridge_template_writes_total", {"action": action})


async def put(cluster, *pods):
    for pod in pods:
        await cluster.create(resources.PODS.raw, pod, pod["metadata"].get("namespace", "default"))


class Changing:
    """A state that a test can exchange."""

    def __init__(self, mode):
        self.enter(mode)

    def enter(self, mode, **fields):
        labels = {"default": {"drawbridge.dev/mode": mode}}
        self.now = msgspec.structs.replace(STATE, namespaces=labels, **fields)
