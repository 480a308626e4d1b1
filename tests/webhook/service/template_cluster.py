"""The template controller on an embedded cluster that records writes, and pods with signed templates."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from cluster import resources
from cluster.controllers import event_recorder
from cluster.embedded.embedded import Embedded
from tests.objects import claim_template, exactly
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


def template_spec(count=1):
    return claim_template("t", exactly("gpu.nvidia.com", name="gpu", count=count))["spec"]


def translated_pod(name="p", count=1, key=KEY, namespace="default", signed_for="", *, followed=True):
    """Return a pod as the webhook translates it; `followed` adds the label of the pods that the controller watches.

    The templates are signed for the pod's own namespace, or for `signed_for`.
    """
    wanted_spec = template_spec(count)
    template_name = template.name_of(wanted_spec)
    manifest = gpu_pod(limits={}, name=name, namespace=namespace)
    original = json.dumps({"containers": {"main": {"nvidia.com/gpu": str(count)}}})
    manifest["metadata"]["annotations"] = {ORIGINAL: original}
    if followed:
        manifest["metadata"]["labels"] = {WAITS_LABEL: "true"}
    signed = template.sign({template_name: wanted_spec}, key, template.identify_raw(manifest, signed_for or namespace))
    manifest["metadata"]["annotations"]["drawbridge.dev/templates"] = signed
    manifest["spec"]["resourceClaims"] = [{"name": "drawbridge-gpu", "resourceClaimTemplateName": template_name}]
    return manifest


class RecordingCluster(Embedded):
    """A cluster that records writes of templates. The process is killed at the write with the number `dies_at`."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.dies_at, self.dies_after_write = 0, False

    async def _write(self, verb, name, write):
        self.writes.append((verb, name))
        dies = len(self.writes) == self.dies_at
        if dies and not self.dies_after_write:
            raise Killed
        result = await write()
        if dies:
            raise Killed
        return result

    async def create(self, resource, obj, namespace=None, **kwargs):
        write = partial(super().create, resource, obj, namespace, **kwargs)
        if resource.id != resources.RESOURCE_CLAIM_TEMPLATES.id or "managed-by" not in str(obj):
            return await write()
        return await self._write("create", obj["metadata"]["name"], write)

    async def delete(self, resource, name, *args, **kwargs):
        write = partial(super().delete, resource, name, *args, **kwargs)
        return await (self._write("delete", name, write) if kwargs.get("uid") else write())


class Killed(BaseException):
    """Stands for kill -9: no code catches this exception."""


@asynccontextmanager
async def running(cluster, state=STATE, **settings):
    settings = {"grace": 3600.0, "sweep_every": 0.02, "retry_every": 0.02} | settings
    current_state = (lambda: state.current) if isinstance(state, ChangingState) else lambda: state
    controller = Templates(
        cluster, current_state, event_recorder.Recorder(cluster, "drawbridge-controller"), WebhookMetrics(), **settings
    )
    task = asyncio.create_task(controller.run())
    try:
        yield controller
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def template_counts(cluster):
    """Return the number of GPUs that each template requests, by name."""
    page = await cluster.list(resources.RESOURCE_CLAIM_TEMPLATES)
    return {item.metadata.name: item.spec.spec.devices.requests[0].exactly.count for item in page.items}


async def wait_for_templates(cluster, *counts):
    """Wait until the cluster has one template for each of these numbers of GPUs, and no other template."""
    await until(lambda: has_templates(cluster, counts))


async def has_templates(cluster, counts):
    return sorted((await template_counts(cluster)).values()) == sorted(counts)


def write_count(controller, action):
    return controller._metrics.registry.get_sample_value("drawbridge_template_writes_total", {"action": action})


async def create_pods(cluster, *pods):
    for pod in pods:
        await cluster.create(resources.PODS.raw, pod, pod["metadata"].get("namespace", "default"))


class ChangingState:
    """The state that the controller gets. A test can replace it."""

    def __init__(self, mode):
        self.set_mode(mode)

    def set_mode(self, mode, **fields):
        labels = {"default": {"drawbridge.dev/mode": mode}}
        self.current = msgspec.structs.replace(STATE, namespaces=labels, **fields)
