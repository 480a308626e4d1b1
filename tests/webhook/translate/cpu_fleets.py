"""Fleets whose nodes publish CPUs, and the pods that get them."""

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.objects import node
from tests.webhook.pods import KEY, configured, patched
from webhook.state import State
from webhook.state.inventory import Inventory
from webhook.translate.translate import translate

EVERYWHERE = {"cpuClaims": {"default": "translate"}}
TWO = {"cpu": "2", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": 1}


def labelled_node(name, **labels):
    return node(name, labels=labels)


def group(name, numa, cpus, **more):
    attributes = {"dra.cpu/numaNodeID": {"int": numa}, "dra.cpu/socketID": {"int": numa}, **more.pop("attributes", {})}
    capacity = {"dra.cpu/cpu": {"value": str(cpus)}}
    return {"name": name, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": True, **more}


GROUPS = [group("cpudevnuma000", 0, 24), group("cpudevnuma001", 1, 24)]
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "dra.cpu"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.cpu'"}}]},
}


def published(name, made, driver="dra.cpu"):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": made,
        },
    }


KINDS = {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "Node": Node}


def held(*objects):
    """Return classes, slices and nodes as typed objects."""
    return [[wire.convert(obj, cls) for obj in objects if obj["kind"] == kind] for kind, cls in KINDS.items()]


def fleet(*objects):
    return Inventory.gather(*held(*objects))


def cpus_on(*names, made=GROUPS, others=()):
    """Return a fleet in which the nodes `names` publish CPUs and the nodes `others` do not."""
    nodes = [labelled_node(name, kind="cpu") for name in names] + [labelled_node(name, kind="other") for name in others]
    return fleet(CLASS, *nodes, *(published(name, made) for name in names))


def verdict_of(value, *, given=None, namespace="n", **fields):
    more = {key: fields.pop(key) for key in ("templates", "quotas", "limit_ranges", "features") if key in fields}
    state = State(configuration=configured(**(EVERYWHERE | fields)), fleet=given or Inventory(), keys=(KEY,), **more)
    return translate(value, state, namespace=namespace, sign=True)


def users(value, verdict):
    """Return the names of the containers that use a claim after the translation."""
    patched_spec = patched(value, verdict)["spec"]
    return [container["name"] for some in ("initContainers", "containers") for container in patched_spec.get(some, []) if container["resources"].get("claims")]  # fmt: skip


def outcomes_of(verdict):
    return [(decision.container, decision.outcome, decision.detail) for decision in verdict.decisions]


def exactly_of(verdict):
    return [
        {"class": request["exactly"]["deviceClassName"]}
        for given_ in verdict.added_claims
        for request in given_.spec["spec"]["devices"]["requests"]
    ]


def gpus(*names):
    name = "gpu.nvidia.com"
    of_gpus = {
        **CLASS,
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{name}'"}}]},
    }
    made = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "productName": {"string": "A"}}}]
    return [of_gpus, *(published(node_name, made, name) for node_name in names)]
