"""How much the claims of each namespace hold, by DeviceClass and over all of them. Quotas go by it.

What counts is what was allocated, not what was asked for: one device a result, and of a capacity the share that was taken, or all of a
device that is taken whole, as its driver publishes it now (less than nothing, which the API server takes, is nothing); such a device also counts by its profile, and by what it takes of counters.
Access for admins is free. Amounts are in nano-units, as quantities keep them.

A stock keeps the sums up to date as it changes (`Difference`), so that no reader walks through a namespace's claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dra.objects import node_of
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
        by_namespace.setdefault(claim.metadata.namespace or "default", []).append(claim)
    sums = {
        namespace: _total(part for claim in here for part in _parts(claim, pages_of))
        for namespace, here in by_namespace.items()
    }
    return {namespace: held for namespace, held in sums.items() if held}


def corrected(sums: Mapping[str, Amounts], differences: Iterable[Difference]) -> dict[str, Amounts]:
    """Answer with the sums of namespaces after claims have changed."""
    parts: dict[str, list[Amounts]] = {}
    for namespace, before, after in differences:
        if before != after:
            less = {key: -amount for key, amount in before.items()}
            parts.setdefault(namespace, [sums.get(namespace, {})]).extend((less, after))
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
    classes: dict[str, str] = {}  # by request, or alternative, as results name them
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            classes[request.name] = request.exactly.device_class_name
        for one in request.first_available:
            classes[f"{request.name}/{one.name}"] = one.device_class_name
    node = node_of(allocation)
    for result in allocation.devices.results:
        class_name = classes.get(result.request)
        if class_name is None or result.admin_access:
            continue
        share: dict[str, int] | None = None
        if result.consumed_capacity or result.share_id is not None:
            share = {name: amount.nano for name, amount in result.consumed_capacity.items()}
        held = held_of(result.driver, _find(result, node, pages_of), share)
        for what, amount in held.items():
            yield (class_name, what), amount
            yield (ALL_CLASSES, what), amount


def held_of(driver: str, device: Device | None, share: Mapping[str, int] | None) -> dict[str, int]:
    """Return how much a share of a device is, or, without a share, all of it; None is a device that is not published."""
    found: dict[str, int] = {}
    if share is not None:
        found.update(share)
    elif device is not None:
        found.update((name, max(0, capacity.value.nano)) for name, capacity in device.capacity.items())
        # A part of another device also counts as one of its profile, and by the counters that it takes.
        profile = device.own_text(driver, "profile") if device.consumes_counters else None
        if profile:
            found[PROFILE + profile] = ONE
        for consumption in device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = COUNTER + name
                found[key] = found.get(key, 0) + max(0, counter.value.nano)
    for name in _COUNTS:  # a capacity of that name is not counted: the two could not be told apart
        found.pop(name, None)
    found[DEVICES] = ONE
    if share is not None:
        found[SHARES] = ONE
    return found


def _find(result: DeviceRequestAllocationResult, node: str, pages_of: PagesOf) -> Device | None:
    """Find the device of a result as it is published now; while a driver publishes a pool anew, as it was before.

    It is found where `PoolDevices` finds it, without listing a pool for one device.
    """
    pages = pages_of.get((result.driver, result.pool), ())
    latest = sorted(pages, key=lambda page: page.generation, reverse=True) if len(pages) > 1 else pages
    for place in (node, "") if node else ("", None):
        for page in latest:
            if place is not None and (page.slice.spec.node_name or "") != place:
                continue
            for device in page.devices:
                if device.name == result.device:
                    return device
    return None
