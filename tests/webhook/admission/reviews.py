"""Reviews of GPU pods, the state on which the decisions are based, and the answers."""

import base64
import copy
import json

import jsonpatch
import msgspec

from dra.stock.stock import Stock
from tests.objects import (
    admission_review,
    claim,
    container,
    device_class,
    exactly,
    node,
    obj,
    pod,
    resource_slice,
    typed,
)
from webhook.admission import review as admission
from webhook.state.configuration import DEFAULT, Configuration
from webhook.state.inventory import Inventory
from webhook.state.state import State

KEY = b"k" * 32
GPU = "gpu.nvidia.com"


def device(index):
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{index}"}, "productName": {"string": "A100"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


SLICE = typed(resource_slice("s", *(device(i) for i in range(4)), driver=GPU, pool="n", nodeName="n"))
CLASS = typed(device_class(GPU, f"device.driver == '{GPU}'"))
NODE = typed(node("n"))
STOCK = Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE])


def state(*, mode="enforce", canary=100, stock=STOCK, **changes):
    configuration = Configuration(msgspec.structs.replace(DEFAULT, mode=mode, canary=canary))
    return State(
        configuration=configuration,
        fleet=Inventory.gather([CLASS], [SLICE], [NODE]),
        keys=(KEY,),
        stock=stock,
        **changes,
    )


ENFORCE = state()


def gpu_pod(*, limits=None, name="p", namespace="", **metadata):
    """Return a pod as the webhook gets it: without a namespace, and with a field of a future Kubernetes."""
    limits = {"nvidia.com/gpu": "1"} if limits is None else limits
    containers = [container(limits=limits, fromTheFuture={"kept": [1]})]
    return pod(name, namespace=namespace, containers=containers, schedulerName="default-scheduler", **metadata)


def review(obj, *, operation="CREATE", old=None, resource="pods", group="", namespace="ns", sub="", **fields):
    request = {
        "uid": "u",
        "kind": {"group": group, "version": "v1", "kind": obj.get("kind", "") if isinstance(obj, dict) else ""},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": sub,
        "namespace": namespace,
    }
    return json.dumps(admission_review(obj, operation=operation, oldObject=old, **request | fields)).encode()


def answer(outcome):
    return json.loads(outcome.body)["response"]


def applied(obj, outcome):
    """Apply the answer's patch to the object with jsonpatch, so that drawbridge's code is not tested with itself."""
    response = answer(outcome)
    if "patch" not in response:
        return obj
    return jsonpatch.apply_patch(obj, json.loads(base64.b64decode(response["patch"])))


def mutated(obj, current_state=ENFORCE, **kwargs):
    """Return the object after its mutating review, and the outcome of the review."""
    outcome = admission.decide_review("mutate", review(obj, **kwargs), current_state)
    return applied(obj, outcome), outcome


def translated(obj):
    """Return the translated pod. No devices are known to the webhook, so it refuses no pod."""
    return mutated(obj, state(stock=None))[0]


def untouched(outcome):
    """Return whether an answer admits the object without a patch or a warning."""
    return answer(outcome) == {"uid": "u", "allowed": True}


# Forged annotations

FORGED = {
    "drawbridge.dev/original": '{"containers":{"main":{"nvidia.com/gpu":"1"}}}',
    "drawbridge.dev/decision": '{"version":"9","decisions":[]}',
    "drawbridge.dev/devices": '{"main":[]}',
    "drawbridge.dev/templates": "v2 00 {}",
}


# Validation


def validated(obj, current_state=ENFORCE, **kwargs):
    """Return the outcome of the validating review of an object."""
    return admission.decide_review("validate", review(obj, **kwargs), current_state)


def gpu_claim(class_=GPU, count=1, **fields):
    return claim("c", exactly(class_, count=count), namespace="") | fields


def claim_request(**kwargs):
    return {"resource": "resourceclaims", "group": "resource.k8s.io"} | kwargs


def limited_workload(kind="Deployment", **limits):
    """Return a workload whose pods have these limits."""
    template_ = {"metadata": {}, "spec": gpu_pod(limits=limits)["spec"]}
    spec = {"template": template_} if kind != "CronJob" else {"jobTemplate": {"spec": {"template": template_}}}
    return obj(kind, "w", "batch/v1" if kind == "CronJob" else "apps/v1", **spec)


def broken(value, rng):
    """Return a copy of a JSON value with one part replaced by a value that does not suit it."""
    value = copy.deepcopy(value)
    junk = rng.choice([None, 0, -1, 1e300, True, "", "\u0000", "x" * 300, [], {}, [None], {"": None}, [[[]]]])
    parent = value
    while isinstance(parent, dict | list) and parent:
        key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
        if rng.random() < 0.3 or not isinstance(parent[key], dict | list):
            parent[key] = junk
            return value
        parent = parent[key]
    return value
