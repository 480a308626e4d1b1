"""Fleets whose nodes publish CPUs, and what the webhook decides about pods that request them."""

from dra import wire
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.objects import device_class, node, resource_slice
from tests.webhook.pods import SIGNING_KEY, configured
from webhook.state import State
from webhook.state.inventory import Inventory
from webhook.translate.translate import translate

# Guaranteed pods get claims for their CPUs in every namespace.
EVERYWHERE = {"cpuClaims": {"default": "translate"}}
TWO_CPUS = {"cpu": "2", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": 1}


def labelled_node(name, **labels):
    return node(name, labels=labels)


def cpu_group(name, numa, cpus, **fields):
    """Return a device that stands for all CPUs of a NUMA node; each claim takes a part of its capacity."""
    attributes = {
        "dra.cpu/numaNodeID": {"int": numa},
        "dra.cpu/socketID": {"int": numa},
        **fields.pop("attributes", {}),
    }
    capacity = {"dra.cpu/cpu": {"value": str(cpus)}}
    return {"name": name, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": True, **fields}


GROUPS = [cpu_group("cpudevnuma000", 0, 24), cpu_group("cpudevnuma001", 1, 24)]
CLASS = device_class("dra.cpu", "device.driver == 'dra.cpu'")


def cpu_slice(name, devices, driver="dra.cpu"):
    """Return the ResourceSlice with which a driver publishes devices of node `name`."""
    return resource_slice(f"{name}-{driver}", *devices, driver=driver, pool=name, nodeName=name)


KINDS = {"DeviceClass": DeviceClass, "ResourceSlice": ResourceSlice, "Node": Node}


def typed_by_kind(*objects):
    """Return a list of the classes, one of the slices and one of the nodes, as typed objects."""
    return [[wire.convert(obj, cls) for obj in objects if obj["kind"] == kind] for kind, cls in KINDS.items()]


def fleet_of(*objects):
    return Inventory.gather(*typed_by_kind(*objects))


def cpus_on(*names, devices=GROUPS, other_names=()):
    """Return a fleet in which the nodes `names` publish CPUs and the nodes `other_names` do not."""
    nodes = [labelled_node(name, kind="cpu") for name in names] + [
        labelled_node(name, kind="other") for name in other_names
    ]
    return fleet_of(CLASS, *nodes, *(cpu_slice(name, devices) for name in names))


def verdict_of(value, *, fleet_=None, namespace="n", **fields):
    """Return the verdict on a pod. `fields` are fields of the state or of the configuration."""
    state_fields = {
        key: fields.pop(key) for key in ("templates", "quotas", "limit_ranges", "features") if key in fields
    }
    state = State(
        configuration=configured(**(EVERYWHERE | fields)),
        fleet=fleet_ or Inventory(),
        keys=(SIGNING_KEY,),
        **state_fields,
    )
    return translate(value, state, namespace=namespace, sign=True)


def outcomes_of(verdict):
    """Return the container, the outcome and the detail of each decision."""
    return [(decision.container, decision.outcome, decision.detail) for decision in verdict.decisions]


def requested_classes(verdict):
    """Return the class of each request in the claims that the webhook adds."""
    return [
        request["exactly"]["deviceClassName"]
        for claim in verdict.added_claims
        for request in claim.spec["spec"]["devices"]["requests"]
    ]


def gpu_objects(*names):
    driver = "gpu.nvidia.com"
    devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "productName": {"string": "A"}}}]
    serving_class = device_class(driver, f"device.driver == '{driver}'")
    return [serving_class, *(cpu_slice(name, devices, driver) for name in names)]
