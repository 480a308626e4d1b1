"""Scenes of a model check: two pods that share claims, or two pods of which only one can get its devices."""

from msgspec.structs import replace

from allocator import allocate
from allocator.reservations import FINALIZER
from dra.objects import CELDeviceSelector, DeviceClass, DeviceSelector, ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_

NODE = "n0"


class Broken(AssertionError):  # noqa: N818  named like a finding, not like an error
    """An invariant does not hold."""


class Scene:
    """A fleet, claims, the claims that each pod needs, a quota, and how many faults, Lease moves and pod deletions may happen."""

    def __init__(self, stock, claims, pods, *, quota=None, faults=2, lease_moves=1, deaths=1):
        self.stock, self.claims, self.pods, self.quota = stock, claims, pods, quota
        self.faults, self.lease_moves, self.deaths = faults, lease_moves, deaths
        self._known_allocations, self._known_conflicts = {}, {}

    def decide(self, allocated_claims, uids_to_allocate):
        """Return allocations for further claims beside the allocated claims; None if too few devices are free."""
        key = (
            tuple(sorted((uid, devices_of_claim(claim)) for uid, claim in allocated_claims.items())),
            tuple(sorted(uids_to_allocate)),
        )
        if key not in self._known_allocations:
            stock = self.stock
            for claim in allocated_claims.values():
                stock = stock.with_object(claim)
            claims = [self.claims[uid] for uid in uids_to_allocate]
            answer = allocate(stock, NODE, claims)
            self._known_allocations[key] = (
                [allocation.allocation for allocation in answer.allocations] if answer.feasible else None
            )
        return self._known_allocations[key]

    def find_conflict(self, allocated_claims):
        """Return why claims must not be allocated together, or "" if the allocator can give each claim in turn the devices that it has."""
        key = tuple(sorted((uid, devices_of_claim(claim)) for uid, claim in allocated_claims.items()))
        if key not in self._known_conflicts:
            self._known_conflicts[key] = self._compute_conflict(allocated_claims)
        return self._known_conflicts[key]

    def _compute_conflict(self, allocated_claims):
        if self.quota is not None and len(allocated_claims) > self.quota:
            return "the quota is exceeded"
        stock = self.stock
        for uid, claim in allocated_claims.items():
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


def _device(name, **fields):
    return {"name": name, "attributes": {"name": {"string": name}}, **fields}


def _claim(name, finalizers=(), **request_fields):
    mode = {"allocationMode": "ExactCount", "count": 1}
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "finalizers": finalizers},
        "spec": {
            "devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any", **mode, **request_fields}}]}
        },
    }
    return convert(body, ResourceClaim)


def _scene(*slices, pods=(("a", ("c",)), ("b", ("e",))), rules=(), claim_fields=None, **limits):
    any_class = convert({"metadata": {"name": "any"}}, DeviceClass)
    stock = Stock.of(nodes=[node(NODE)], slices=slices, classes=[any_class], compatibilities=rules)
    names = sorted({name for _, claims in pods for name in claims})
    return Scene(stock, {name: _claim(name, **(claim_fields or {})) for name in names}, dict(pods), **limits)


def one_device(**limits):
    return _scene(slice_("s", _device("d0")), **limits)


def one_shared_claim(**limits):
    return _scene(slice_("s", _device("d0")), pods=(("a", ("c",)), ("b", ("c",))), **limits)


def one_protected_claim(**limits):
    """The claim has its finalizer from the start (manifests/protected-claims)."""
    pods = (("a", ("c",)), ("b", ("c",)))
    return _scene(slice_("s", _device("d0")), pods=pods, claim_fields={"finalizers": (FINALIZER,)}, **limits)


def two_shared_claims(**limits):
    """Each pod needs both claims, and each claim needs one device."""
    devices = (_device("d0"), _device("d1"))
    return _scene(slice_("s", *devices), pods=(("a", ("c", "e")), ("b", ("c", "e"))), **limits)


def capacity_for_one_pod(**limits):
    shared_device = _device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "3"}})
    return _scene(slice_("s", shared_device), claim_fields={"capacity": {"requests": {"memory": "2"}}}, **limits)


def counter_for_one_pod(**limits):
    devices = [_device("d0") | consuming("d0", k={"m": "2"}), _device("d1") | consuming("d1", k={"m": "2"})]
    devices = [{**device, **_device(device["name"])} for device in devices]
    counter_slice = slice_("counters", pool="p", count=2, counters={"k": {"m": "3"}})
    return _scene(counter_slice, slice_("s", *devices, count=2), **limits)


def two_incompatible_devices(**limits):
    rule = compatibility(expression=f'device.attributes["{DRIVER}"].name == "other"')
    return _scene(slice_("s", _device("d0"), _device("d1")), rules=[rule], **limits)


def quota_for_one_pod(**limits):
    slices = (slice_("s", _device("d0")), slice_("t", _device("d1"), pool="q"))
    return _scene(*slices, quota=1, **limits)
