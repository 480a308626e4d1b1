"""Scenes of a model check: two pods and devices for one of them; each scene limits the devices in its own way."""

from msgspec.structs import replace

from allocator import allocate
from allocator.reservations import FINALIZER
from dra.objects import CELDeviceSelector, DeviceClass, DeviceSelector, ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_

NODE = "n0"


class Broken(AssertionError):  # noqa: N818  it is a finding
    """An invariant does not hold."""


class Scene:
    """A fleet, the claims of each pod, the quota, and the limits of faults."""

    def __init__(self, stock, claims, pods, *, quota=None, faults=2, lease_moves=1, deaths=1):
        self.stock, self.claims, self.pods, self.quota = stock, claims, pods, quota
        self.faults, self.lease_moves, self.deaths = faults, lease_moves, deaths
        self._decided, self._judged = {}, {}

    def decide(self, held, wanted):
        """Return the allocations of claims beside the held claims; None if they do not fit."""
        key = (tuple(sorted((uid, devices_of_claim(claim)) for uid, claim in held.items())), tuple(sorted(wanted)))
        if key not in self._decided:
            stock = self.stock
            for claim in held.values():
                stock = stock.with_object(claim)
            claims = [self.claims[uid] for uid in wanted]
            answer = allocate(stock, NODE, claims)
            self._decided[key] = (
                [allocation.allocation for allocation in answer.allocations] if answer.feasible else None
            )
        return self._decided[key]

    def judge(self, allocated):
        """Return why claims must not be allocated together, by a decision about each of them in turn."""
        key = tuple(sorted((uid, devices_of_claim(claim)) for uid, claim in allocated.items()))
        if key not in self._judged:
            self._judged[key] = self._judge_in_order(allocated)
        return self._judged[key]

    def _judge_in_order(self, allocated):
        if self.quota is not None and len(allocated) > self.quota:
            return "the quota is exceeded"
        stock = self.stock
        for uid, claim in allocated.items():
            pinned = _pin_devices(self.claims[uid], claim.status.allocation)
            if not allocate(stock, NODE, [pinned]).feasible:
                return f"{uid} holds devices that are not free"
            stock = stock.with_object(claim)
        return ""


def _pin_devices(claim, allocation):
    """Return the claim with a request for exactly the devices of an allocation."""
    names = [result.device for result in allocation.devices.results]
    expression = " || ".join(f'device.attributes["{DRIVER}"].name == "{name}"' for name in names)
    (request,) = claim.spec.devices.requests
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    requests = (replace(request, exactly=replace(request.exactly, selectors=(selector,))),)
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


def devices_of_claim(claim):
    allocation = claim.status.allocation
    if allocation is None:
        return ()
    return tuple((result.pool, result.device, result.share_id is not None) for result in allocation.devices.results)


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
    """The claim has its finalizer from the start (manifests/protected-claims)."""
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
