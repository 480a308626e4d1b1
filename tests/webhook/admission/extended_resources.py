"""Pods with extended resources, and clusters in which a DeviceClass or a device plugin serves these resources."""

import msgspec

from dra import wire
from dra.objects import DeviceClass, DeviceTaintRule, Node, ResourceClaim, ResourceSlice
from tests.webhook.admission.reviews import answer, gpu_pod, review
from tests.webhook.pods import configured
from webhook.admission import review as admission
from webhook.state import StateBuilder
from webhook.state.features import Features

GPU = "nvidia.com/gpu"
# Settings of the bridge (drawbridge's allocator) that keep other schedulers from the devices of this driver.
FENCED = {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"], "fence": True}
DRIVER = "gpu.nvidia.com"
# The extended resource by which any pod can request devices of this DeviceClass, whatever the class says.
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
# NVIDIA's chart renders this DeviceClass if the cluster serves resource.k8s.io/v1.
CLASS = {
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"}}
        ],
        "extendedResourceName": GPU,
    },
}


def plugin_node(name, amount):
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: amount, "cpu": "8"}}}


def gpu_slice(count, name="a"):
    devices = [{"name": f"gpu-{index}", "attributes": {"type": {"string": "gpu"}}} for index in range(count)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}}


def world(*, nodes=(), devices=2, slices=None, classes=(CLASS,), claims=(), rules=(), **fields):
    """Return the state of a cluster: by default one node with two GPUs of a driver."""
    builder = StateBuilder(configured(mode="enforce", **fields), keys=(b"key",))
    builder.learn(features=Features(minor=37))
    objects = [wire.convert(obj, Node) for obj in ({"metadata": {"name": "a"}}, *nodes)]
    objects += [wire.convert(slices or gpu_slice(devices), ResourceSlice)]
    objects += [wire.convert(device_class, DeviceClass) for device_class in classes]
    objects += [wire.convert(claim, ResourceClaim) for claim in claims]
    objects += [wire.convert(rule, DeviceTaintRule) for rule in rules]
    builder.update_objects(objects)
    builder.settle()
    return builder.state(fresh=True)


def pod_requesting(count, key=GPU, **metadata):
    return gpu_pod(limits={key: str(count)}, **metadata)


def webhook_response(obj, state):
    return answer(admission.decide_review("mutate", review(obj), state))


def with_mode(state, mode):
    return msgspec.structs.replace(state, namespaces={"ns": {"drawbridge.dev/mode": mode}})
