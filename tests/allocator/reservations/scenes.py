"""Scenes with two pods and devices for one of them; each scene limits the devices in another way."""

from allocator.reservations import FINALIZER
from dra.objects import DeviceClass, ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.allocator.reservations.explorer import NODE, Scene
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_


def _named(name, **fields):
    return {"name": name, "attributes": {"name": {"string": name}}, **fields}


def _claim(name, finalizers=(), **exactly):
    every = {"allocationMode": "ExactCount", "count": 1}
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "finalizers": finalizers},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any", **every, **exactly}}]}},
    }
    return convert(body, ResourceClaim)


def _scene(*slices, pods=(("a", ("c",)), ("b", ("e",))), rules=(), exactly=None, **limits):
    any_ = convert({"metadata": {"name": "any"}}, DeviceClass)
    stock = Stock.of(nodes=[node(NODE)], slices=slices, classes=[any_], compatibilities=rules)
    names = sorted({name for _, claims in pods for name in claims})
    return Scene(stock, {name: _claim(name, **(exactly or {})) for name in names}, dict(pods), **limits)


def one_device(**limits):
    return _scene(slice_("s", _named("d0")), **limits)


def one_claim(**limits):
    return _scene(slice_("s", _named("d0")), pods=(("a", ("c",)), ("b", ("c",))), **limits)


def one_protected_claim(**limits):
    """The claim has its finalizer from the beginning (manifests/protected-claims)."""
    pods = (("a", ("c",)), ("b", ("c",)))
    return _scene(slice_("s", _named("d0")), pods=pods, exactly={"finalizers": (FINALIZER,)}, **limits)


def crossed(**limits):
    """Each pod needs both claims, of two devices."""
    devices = (_named("d0"), _named("d1"))
    return _scene(slice_("s", *devices), pods=(("a", ("c", "e")), ("b", ("c", "e"))), **limits)


def one_capacity(**limits):
    shared = _named("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "3"}})
    return _scene(slice_("s", shared), exactly={"capacity": {"requests": {"memory": "2"}}}, **limits)


def one_counter(**limits):
    devices = [_named("d0") | consuming("d0", k={"m": "2"}), _named("d1") | consuming("d1", k={"m": "2"})]
    devices = [{**device, **_named(device["name"])} for device in devices]
    counting = slice_("counters", pool="p", count=2, counters={"k": {"m": "3"}})
    return _scene(counting, slice_("s", *devices, count=2), **limits)


def one_of_a_pair(**limits):
    apart = compatibility(expression=f'device.attributes["{DRIVER}"].name == "other"')
    return _scene(slice_("s", _named("d0"), _named("d1")), rules=[apart], **limits)


def one_by_quota(**limits):
    slices = (slice_("s", _named("d0")), slice_("t", _named("d1"), pool="q"))
    return _scene(*slices, quota=1, **limits)
