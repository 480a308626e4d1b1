"""The example fleet, unchanged or with other nodes, classes or slices."""

import msgspec

from cluster import manifests
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from tests.objects import device_class, node, resource_slice, typed
from tests.webhook.pods import EXAMPLES, HAMI, pod, read_objects
from webhook.state.inventory import Inventory

GPU_POD = pod({"nvidia.com/gpu": 1})


def example_objects():
    return read_objects(manifests.read([EXAMPLES / "fleet"]))


def example_fleet_with(*, classes=None, slices=None, nodes=()) -> Inventory:
    """Return the example fleet with other classes or slices, and with more nodes."""
    example = example_objects()
    return Inventory.gather(
        example.of_type(DeviceClass) if classes is None else classes,
        example.of_type(ResourceSlice) if slices is None else slices,
        [*example.of_type(Node), *nodes],
    )


def old_node(name="old", *, labels=None, allocatable=None) -> Node:
    """Return a node without slices; its labels or resources may show that a device plugin serves it."""
    return typed(node(name, labels=labels, allocatable=allocatable))


def typed_class(name: str, *expressions: str, **fields: str) -> DeviceClass:
    return typed(device_class(name, *expressions, **fields))


# Labels or resources of nodes on which a device plugin hands out GPUs, or parts of them.
OLD_NODES = [
    {"allocatable": {"nvidia.com/gpu": "8"}},
    {"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}},
    {"labels": {"nvidia.com/gpu.replicas": "4"}},
    {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED"}},
    {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}},
    {"labels": {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}},
]


def slices_without(driver: str, *names: str) -> list[ResourceSlice]:
    """Return the example slices, in which the devices of one driver lack these attributes."""

    def bare(slice_: ResourceSlice) -> ResourceSlice:
        devices = tuple(
            msgspec.structs.replace(d, attributes={k: v for k, v in d.attributes.items() if k not in names})
            for d in slice_.spec.devices
        )
        return msgspec.structs.replace(slice_, spec=msgspec.structs.replace(slice_.spec, devices=devices))

    return [
        bare(slice_) if slice_.spec.driver == driver else slice_ for slice_ in example_objects().of_type(ResourceSlice)
    ]


def hami_slice(name: str, *sizes: tuple[str, str]) -> ResourceSlice:
    """Return a slice of HAMi's driver with devices of these products and amounts of memory."""
    devices = [
        {
            "name": f"gpu-{i}",
            "allowMultipleAllocations": True,
            "attributes": {"type": {"string": "hami-gpu"}, "productName": {"string": product}},
            "capacity": {"memory": {"value": memory}, "cores": {"value": "100"}},
        }
        for i, (product, memory) in enumerate(sizes)
    ]
    return typed(resource_slice(f"{name}-hami", *devices, driver=HAMI, pool=name, nodeName=name))


def memory_alternatives(verdict) -> list[str]:
    (spec,) = verdict.templates.values()
    (request,) = spec["spec"]["devices"]["requests"]
    return [alternative["capacity"]["requests"]["memory"] for alternative in request["firstAvailable"]]


HALF_GPU_POD = pod({"nvidia.com/gpumem-percentage": 50})
