"""Objects of the field written in one line, for tests."""

from dra.objects.claim import ResourceClaim
from dra.objects.device import Device, ResourceSlice
from dra.objects.node import Node
from dra.objects.own_kinds import DeviceCompatibility
from dra.objects.taint import DeviceTaintRule
from dra.wire import convert

DRIVER = "gpu.example.com"


def slice_(name, *devices, node="n0", pool="p", generation=1, count=1, driver=DRIVER, counters=(), **spec):
    """Make a slice; devices are names or whole devices, counters are set → counter → value."""
    where = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": node}
    body = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": [device if isinstance(device, dict) else {"name": device} for device in devices],
        "sharedCounters": [
            {"name": set_, "counters": {name_: {"value": value} for name_, value in values.items()}}
            for set_, values in dict(counters).items()
        ],
        **where,
        **spec,
    }
    return convert(
        {"metadata": {"name": name}, "spec": {key: value for key, value in body.items() if value}}, ResourceSlice
    )


def consuming(name, groups=(), **sets):
    """Make a device that consumes counters: set=counter→value."""
    consumes = [
        {
            "counterSet": set_,
            "counters": {counter: {"value": value} for counter, value in counters.items()},
            "compatibilityGroups": list(groups),
        }
        for set_, counters in sets.items()
    ]
    return {"name": name, "consumesCounters": consumes}


def node(name="n0", **labels):
    """Make a node."""
    return convert({"metadata": {"name": name, "labels": labels}}, Node)


def holding(name, *devices, pool="p", share=None, admin=False, consumed=None):
    """Make a claim that holds devices."""
    results = [
        {
            "request": "r",
            "driver": DRIVER,
            "pool": pool,
            "device": device,
            **({"shareID": share} if share else {}),
            **({"adminAccess": True} if admin else {}),
            **({"consumedCapacity": consumed} if consumed else {}),
        }
        for device in devices
    ]
    meta = {"name": name, "namespace": "team", "uid": name}
    status = {"allocation": {"devices": {"results": results}}}
    return convert({"metadata": meta, "spec": {}, "status": status}, ResourceClaim)


def rule(name="rule", effect="NoSchedule", **selector):
    """Make a DeviceTaintRule."""
    spec = {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


def compatibility(name="rule", expression="", selector="", scope="pool", groups="upstream"):
    """Make a DeviceCompatibility."""
    spec = {"driver": DRIVER, "selector": selector, "compatibleOnlyWith": expression, "scope": scope, "groups": groups}
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceCompatibility)


def device(**fields):
    """Make a device."""
    return convert({"name": "d", **fields}, Device)
