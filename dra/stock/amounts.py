"""How much the claims of each namespace hold, by DeviceClass and in total. Quotas limit these amounts.

Each result of an allocation counts as one device. A share counts with the capacity that it consumes. A device that is
held whole counts with all of the capacity that its driver publishes now (a negative capacity counts as zero). A
partition that is held whole also counts by its profile and by the counters that it consumes. Results with admin access
count nothing. Amounts are in nano-units.

A stock updates the sums with each change (`Difference`), so that no reader has to add up the claims of a namespace.
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
SHARES = "shares"  # the number of shares of devices; each share also counts as a device
PROFILE = "profile."  # followed by the name of a profile: the number of partitions with this profile
COUNTER = "counter."  # followed by the name of a counter: how much partitions consume of this counter
ALL_CLASSES = "*"
ONE = Quantity.from_int(1).nano
_COUNTS = (DEVICES, SHARES)
# The keys are a class or ALL_CLASSES, and a resource: one of the above, or the name of a capacity. No amount is zero.
Amounts: TypeAlias = "Mapping[tuple[str, str], int]"
_Part: TypeAlias = "tuple[tuple[str, str], int]"
PagesOf: TypeAlias = "Mapping[PoolId, tuple[Page, ...]]"


class Difference(NamedTuple):
    """The amounts that a claim holds before and after a change."""

    namespace: str
    before: Amounts
    after: Amounts


def amounts_of(claim: ResourceClaim, pages_of: PagesOf) -> Amounts:
    return _total(_parts(claim, pages_of))


def total(parts: Iterable[Amounts]) -> Amounts:
    return _total(entry for part in parts for entry in part.items())


def sums_of(claims: Iterable[ResourceClaim], pages_of: PagesOf) -> dict[str, Amounts]:
    """Return how much the claims of each namespace hold."""
    parts: dict[str, list[_Part]] = {}
    for claim in claims:
        parts.setdefault(claim.metadata.namespace or "default", []).extend(_parts(claim, pages_of))
    sums = {namespace: _total(of_namespace) for namespace, of_namespace in parts.items()}
    return {namespace: amounts for namespace, amounts in sums.items() if amounts}


def corrected(sums: Mapping[str, Amounts], differences: Iterable[Difference]) -> dict[str, Amounts]:
    """Return the sums of all namespaces after changes of claims."""
    parts: dict[str, list[Amounts]] = {}
    for namespace, before, after in differences:
        if before != after:
            subtracted = {key: -amount for key, amount in before.items()}
            parts.setdefault(namespace, [sums.get(namespace, {})]).extend((subtracted, after))
    new_sums = {**sums}
    for namespace, of_namespace in parts.items():
        new_sums[namespace] = total(of_namespace)
        if not new_sums[namespace]:
            del new_sums[namespace]
    return new_sums


def _total(parts: Iterable[_Part]) -> Amounts:
    sums: dict[tuple[str, str], int] = {}
    for key, amount in parts:
        sums[key] = sums.get(key, 0) + amount
    return {key: amount for key, amount in sums.items() if amount}


def _parts(claim: ResourceClaim, pages_of: PagesOf) -> Iterator[_Part]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    classes: dict[str, str] = {}  # by the name of a request in results
    for request in claim.spec.devices.requests:
        for name, alternative in request.alternatives.items():
            classes[name] = alternative.device_class_name
    node = node_of(allocation)
    for result in allocation.devices.results:
        class_name = classes.get(result.request)
        if class_name is None or result.admin_access:
            continue
        share: dict[str, int] | None = None
        if result.consumed_capacity or result.share_id is not None:
            share = {name: amount.nano for name, amount in result.consumed_capacity.items()}
        amounts = held_of(result.driver, _find(result, node, pages_of), share)
        for resource, amount in amounts.items():
            yield (class_name, resource), amount
            yield (ALL_CLASSES, resource), amount


def held_of(driver: str, device: Device | None, share: Mapping[str, int] | None) -> dict[str, int]:
    """Return the amounts of a share of a device, or of the whole device if `share` is None.

    An unpublished device has no capacity.
    """
    amounts: dict[str, int] = {}
    if share is not None:
        amounts.update(share)
    elif device is not None:
        amounts.update((name, max(0, capacity.value.nano)) for name, capacity in device.capacity.items())
        # A partition also counts by its profile and by the counters that it consumes.
        profile = device.own_text(driver, "profile") if device.consumes_counters else None
        if profile:
            amounts[PROFILE + profile] = ONE
        for consumption in device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = COUNTER + name
                amounts[key] = amounts.get(key, 0) + max(0, counter.value.nano)
    for name in _COUNTS:  # a capacity called `devices` or `shares` would be ambiguous, so it does not count
        amounts.pop(name, None)
    amounts[DEVICES] = ONE
    if share is not None:
        amounts[SHARES] = ONE
    return amounts


def _find(result: DeviceRequestAllocationResult, node: str, pages_of: PagesOf) -> Device | None:
    """Find the device of a result in the newest generation of the pool that has the device.

    The result is that of `PoolDevices.find`; this function does not index the pool for one device.
    """
    pages = pages_of.get((result.driver, result.pool), ())
    latest = sorted(pages, key=lambda page: page.generation, reverse=True) if len(pages) > 1 else pages
    for publishing_node in (node, "") if node else ("", None):
        for page in latest:
            if publishing_node is not None and (page.slice.spec.node_name or "") != publishing_node:
                continue
            for device in page.devices:
                if device.name == result.device:
                    return device
    return None
