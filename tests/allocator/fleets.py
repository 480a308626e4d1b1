"""Small fleets in one line each: whole, shared and partitioned GPUs, claims, and allocations."""

import itertools

from allocator.answer import with_allocation
from dra.objects.claim import DeviceClass
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.stock.stock import Stock
from dra.wire import convert
from tests import objects
from tests.objects import allocated as allocated_status
from tests.objects import result, typed

DRIVER = "gpu.example.com"
# By profile of a partition: how many slots of the GPU it takes, and at which slots it may start.
PROFILES = {"1g": (1, range(8)), "2g": (2, range(0, 8, 2)), "4g": (4, (0, 4)), "8g": (8, (0,))}
_numbers = itertools.count()


def gpu(name, *, memory=None, root=None, numa=None, nvlink=None, profile="gpu", **further_fields):
    """Return a device, with further fields."""
    attributes = {"profile": {"string": profile}}
    if root is not None:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": root}
    if numa is not None:
        attributes["numaNode"] = {"int": numa}
    if nvlink is not None:
        attributes["nvlinkDomain"] = {"string": nvlink}
    capacity = {"capacity": {"memory": {"value": memory}}} if memory else {}
    return {"name": name, "attributes": attributes, **capacity, **further_fields}


def shared(name, memory):
    """Return a device whose memory several claims may share."""
    return gpu(name, memory=memory, allowMultipleAllocations=True)


def partitions(name, groups=()):
    """Return all partitions of a GPU with eight slots, small ones first."""
    devices = []
    for profile, (size, starts) in PROFILES.items():
        for start in starts:
            counters = {f"slot-{slot}": {"value": "1"} for slot in range(start, start + size)}
            consumptions = [
                {"counterSet": name, "counters": counters, **({"compatibilityGroups": list(groups)} if groups else {})}
            ]
            devices.append(gpu(f"{name}-{profile}-{start}", profile=profile, consumesCounters=consumptions))
    return tuple(devices)


def fleet(nodes, *claims, rules=(), labels=None):
    """Return a stock of nodes with these devices, and of claims. Slices declare the counter sets that the devices consume."""
    slices = []
    for node, devices in nodes.items():
        counter_sets = sorted(
            {consumption["counterSet"] for device in devices for consumption in device.get("consumesCounters", ())}
        )
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1 + bool(counter_sets)}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node}
        slices.append({"metadata": {"name": f"{node}-devices"}, "spec": {**spec, "devices": list(devices)}})
        if counter_sets:
            slots = {f"slot-{slot}": {"value": "1"} for slot in range(8)}
            declared_sets = [{"name": name, "counters": slots} for name in counter_sets]
            slices.append({"metadata": {"name": f"{node}-counters"}, "spec": {**spec, "sharedCounters": declared_sets}})
    classes = [
        {
            "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{name}"'}}]},
        }
        for name in ("gpu", *PROFILES)
    ]
    return Stock.of(
        nodes=[convert({"metadata": {"name": name, "labels": (labels or {}).get(name, {})}}, Node) for name in nodes],
        slices=[convert(slice_, ResourceSlice) for slice_ in slices],
        classes=[convert(device_class, DeviceClass) for device_class in classes],
        claims=claims,
        rules=rules,
    )


def claim(name, *requests, constraints=(), status=None):
    """Return a claim."""
    return typed(objects.claim(name, *requests, uid=f"uid-{name}", constraints=constraints, status=status))


def taken(node, device, *, memory=None, name=None):
    """Return a claim that holds a device, or with `memory` a share of the device."""
    number = next(_numbers)
    share = {"shareID": f"share-{number}", "consumedCapacity": {"memory": memory}} if memory else {}
    return claim(name or f"holder-{number}", status=allocated_status(result(device, driver=DRIVER, pool=node, **share)))


def allocated(pending_claim, answer):
    """Return the claim with the first allocation of an answer."""
    return with_allocation(pending_claim, answer.allocations[0].allocation)
