"""How much the claims of each namespace hold, by DeviceClass and over all of them. Quotas go by it.

What counts is what was allocated, not what was asked for: one device a result, and of a capacity the share that was taken, or all of a
device that is taken whole, as its driver publishes it now; such a device also counts by its profile, and by what it takes of counters.
Access for admins is free. Amounts are in nano-units, as quantities keep them.

A stock keeps the sums up to date as it changes (`Difference`), so that nobody has to walk through a namespace's claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.objects import Device, DeviceRequestAllocationResult, ResourceClaim
    from dra.stock.pool import Page
    from dra.stock.usage import PoolId

DEVICES = "devices"
SHARES = "shares"  # of devices that several claims may have; each is a device, too
PROFILE = "profile."  # and its name: devices of that profile that are parts of others
COUNTER = "counter."  # and its name: what devices that are parts of others take of it
ALL_CLASSES = "*"
ONE = Quantity.from_int(1).nano
_COUNTS = (DEVICES, SHARES)
# By class or ALL_CLASSES, and by what of it: one of the above, or the name of a capacity. What is nothing is left out.
Amounts: TypeAlias = "Mapping[tuple[str, str], int]"
_Part: TypeAlias = "tuple[tuple[str, str], int]"
PagesOf: TypeAlias = "Mapping[PoolId, tuple[Page, ...]]"


class Difference(NamedTuple):
    """What a claim held, and holds now."""

    namespace: str
    before: Amounts
    after: Amounts


def amounts_of(claim: ResourceClaim, pages_of: PagesOf) -> Amounts:
    """Say how much a claim holds."""
    return _total(_parts(claim, pages_of))


def total(parts: Iterable[Amounts]) -> Amounts:
    """Add up."""
    return _total(entry for part in parts for entry in part.items())


def sums_of(claims: Iterable[ResourceClaim], pages_of: PagesOf) -> dict[str, Amounts]:
    """Say how much the claims of each namespace hold."""
    by_namespace: dict[str, list[ResourceClaim]] = {}
    for claim in claims:
        here = by_namespace.setdefault(claim.metadata.namespace or "default", [])
        here.append(claim)
    found: dict[str, Amounts] = {}
    for namespace, here in by_namespace.items():
        held = _total(part for claim in here for part in _parts(claim, pages_of))
        if held:
            found[namespace] = held
    return found


def corrected(sums: Mapping[str, Amounts], differences: Iterable[Difference]) -> dict[str, Amounts]:
    """Answer with the sums of namespaces after claims have changed."""
    parts: dict[str, list[Amounts]] = {}
    for one in differences:
        if one.before == one.after:
            continue
        less = {key: -amount for key, amount in one.before.items()}
        here = parts.setdefault(one.namespace, [sums.get(one.namespace, {})])
        here += less, one.after
    found = {**sums}
    for namespace, here in parts.items():
        found[namespace] = total(here)
        if not found[namespace]:
            del found[namespace]
    return found


def _total(parts: Iterable[_Part]) -> Amounts:
    found: dict[tuple[str, str], int] = {}
    for key, amount in parts:
        found[key] = found.get(key, 0) + amount
    return {key: amount for key, amount in found.items() if amount}


def _parts(claim: ResourceClaim, pages_of: PagesOf) -> Iterator[_Part]:
    """List what a claim holds, one by one."""
    allocation = claim.status.allocation
    if allocation is None:
        return
    classes = _classes_of(claim)
    for result in allocation.devices.results:
        class_name = classes.get(result.request)
        if class_name is None or result.admin_access:
            continue
        device = _find(result, pages_of)
        held = held_of(result.driver, device, _share(result))
        for what, amount in held.items():
            yield (class_name, what), amount
            yield (ALL_CLASSES, what), amount


def held_of(driver: str, device: Device | None, share: Mapping[str, int] | None) -> dict[str, int]:
    """Say how much who has a share of a device holds, or, without a share, who has all of it; None is one that nobody publishes."""
    found: dict[str, int] = {}
    if share is not None:
        found.update(share)
    elif device is not None:
        found.update((name, capacity.value.nano) for name, capacity in device.capacity.items())
        _add_part(found, driver, device)
    for name in _COUNTS:  # a capacity of that name is not counted: nobody could tell the two apart
        found.pop(name, None)
    found[DEVICES] = ONE
    if share is not None:
        found[SHARES] = ONE
    return found


def _share(result: DeviceRequestAllocationResult) -> dict[str, int] | None:
    """Read how much of each capacity a result takes, if it is a share of a device."""
    taken = result.consumed_capacity
    if not taken and result.share_id is None:
        return None
    return {name: amount.nano for name, amount in taken.items()}


def _add_part(found: dict[str, int], driver: str, device: Device) -> None:
    """Add what a device is besides that is a part of another: one of a profile, and so much of its counters."""
    if not device.consumes_counters:
        return
    profile = device.own_text(driver, "profile")
    if profile:
        found[PROFILE + profile] = ONE
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            key = COUNTER + name
            found[key] = found.get(key, 0) + counter.value.nano


def _classes_of(claim: ResourceClaim) -> dict[str, str]:
    """Name the class of each request, and of each alternative, as results name them."""
    found: dict[str, str] = {}
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for one in request.first_available:
            found[f"{request.name}/{one.name}"] = one.device_class_name
    return found


def _find(result: DeviceRequestAllocationResult, pages_of: PagesOf) -> Device | None:
    """Find the device of a result as it is published now."""
    pool = result.driver, result.pool
    for page in pages_of.get(pool, ()):
        for device in page.devices:
            if device.name == result.device:
                return device
    return None
