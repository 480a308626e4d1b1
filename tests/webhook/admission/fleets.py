"""Nodes with GPUs, and claims for these GPUs."""

from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.taint import DeviceTaintRule
from dra.stock.stock import Stock
from tests.objects import allocated, claim, device_class, exactly, node, resource_slice, result, typed

DRIVER = "gpu.nvidia.com"


def typed_node(name):
    return typed(node(name))


def gpu_slice(node, count, *, memory="80Gi", slices=1, **device):
    """Return a slice with `count` GPUs of a node, whose pool has `slices` slices in all. `device` has further fields of each GPU."""
    devices = [{"name": f"gpu-{i}", "capacity": {"memory": {"value": memory}}} | device for i in range(count)]
    fields = {"driver": DRIVER, "pool": node, "nodeName": node, "resourceSliceCount": slices}
    return typed(resource_slice(f"{node}-s", *devices, **fields))


def typed_class(name=DRIVER, expression=f"device.driver == '{DRIVER}'"):
    return typed(device_class(name, expression))


def claim_for(count=1, *, name="c", cel="", held_devices=(), class_=DRIVER, **constraint):
    """Return a claim for `count` GPUs; `held_devices` names the GPUs of node n0 that are allocated to it."""
    request = exactly(class_, count=count, selector=cel)
    status = allocated(*(result(device, driver=DRIVER, pool="n0") for device in held_devices)) if held_devices else None
    constraints = [constraint] if constraint else []
    return typed(claim(name, request, namespace="ns", constraints=constraints, status=status))


def stock(*further_objects, nodes=("n0", "n1"), count=4, **slice_fields):
    """Return a stock (the objects that the allocator knows) of nodes with `count` GPUs each, and further objects."""
    objects = [*further_objects]
    return Stock.of(
        nodes=[typed_node(name) for name in nodes],
        slices=[gpu_slice(name, count, **slice_fields) for name in nodes],
        classes=[typed_class(), *[o for o in objects if isinstance(o, DeviceClass)]],
        claims=[o for o in objects if isinstance(o, ResourceClaim)],
        rules=[o for o in objects if isinstance(o, DeviceTaintRule)],
    )
