"""Functions that make a node, a slice, a claim or a rule in one line."""

from dra.objects.claim import ResourceClaim
from dra.objects.device import Device, ResourceSlice
from dra.objects.node import Node
from dra.objects.own_kinds import DeviceCompatibility
from dra.objects.taint import DeviceTaintRule
from dra.wire import convert
from tests import objects
from tests.objects import allocated, claim, resource_slice, result

DRIVER = "gpu.example.com"


def slice_(name, *devices, node="n0", pool="p", generation=1, count=1, driver=DRIVER, counters=(), **spec):
    """Make a slice. Devices are names or whole devices; `counters` maps counter sets to counters and their values."""
    where = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": node}
    sets = [
        {"name": set_, "counters": {name_: {"value": value} for name_, value in values.items()}}
        for set_, values in dict(counters).items()
    ]
    fields = {"sharedCounters": sets} if sets else {}
    numbers = {"generation": generation, "resourceSliceCount": count}
    document = resource_slice(name, *devices, driver=driver, pool=pool, **numbers, **fields | where | spec)
    return convert(document, ResourceSlice)


def consuming(name, groups=(), **sets):
    """Make a device that consumes counters. Each further argument is a counter set, with its counters and their values."""
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
    return convert(objects.node(name, labels=labels), Node)


def holding(name, *devices, pool="p", share=None, admin=False, consumed=None):
    """Make a claim that holds devices."""
    fields = {"shareID": share, "adminAccess": admin, "consumedCapacity": consumed}
    set_fields = {field: value for field, value in fields.items() if value}
    status = allocated(*(result(device, driver=DRIVER, pool=pool, **set_fields) for device in devices))
    return convert(claim(name, namespace="team", uid=name, status=status), ResourceClaim)


def rule(name="rule", effect="NoSchedule", **selector):
    """Make a DeviceTaintRule."""
    spec = {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


def compatibility(name="rule", expression="", selector="", scope="pool", groups="upstream"):
    """Make a DeviceCompatibility."""
    spec = {"driver": DRIVER, "selector": selector, "compatibleOnlyWith": expression, "scope": scope, "groups": groups}
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceCompatibility)


def device(**fields):
    return convert({"name": "d", **fields}, Device)
