"""How much the claims of each namespace hold, by DeviceClass: devices, and of each capacity. Quotas go by it.

What counts is what was allocated, not what was asked for: one device a result, and of a capacity the share that was taken, or all of a
device that is taken whole, as its driver publishes it now. Access for admins is free. Amounts are in nano-units, as quantities keep them.

A stock keeps the sums up to date as it changes (`Difference`), so that nobody has to walk through a namespace's claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.objects import DeviceRequestAllocationResult, ResourceClaim
    from dra.stock.pool import Page
    from dra.stock.usage import PoolId

DEVICES = "devices"
ONE = Quantity.from_int(1).nano
# By class, and by what of it: DEVICES, or the name of a capacity. What is nothing is left out.
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
        yield (class_name, DEVICES), ONE
        for name, amount in _capacities(result, pages_of):
            if name != DEVICES:
                yield (class_name, name), amount


def _classes_of(claim: ResourceClaim) -> dict[str, str]:
    """Name the class of each request, and of each alternative, as results name them."""
    found: dict[str, str] = {}
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found[request.name] = request.exactly.device_class_name
        for one in request.first_available:
            found[f"{request.name}/{one.name}"] = one.device_class_name
    return found


def _capacities(result: DeviceRequestAllocationResult, pages_of: PagesOf) -> Iterable[tuple[str, int]]:
    """Say how much of each capacity a result takes."""
    taken = result.consumed_capacity
    if taken:
        return [(name, amount.nano) for name, amount in taken.items()]
    pool = result.driver, result.pool
    for page in pages_of.get(pool, ()):
        for device in page.devices:
            if device.name == result.device:
                whole = device.capacity
                return [(name, one.value.nano) for name, one in whole.items()]
    return ()
