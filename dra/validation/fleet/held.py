"""What claims hold, against each other and against what is published: section by section what no allocator would do.

The API server keeps allocations apart from each other no better than this file does after the fact: two writers can give
one device away twice, and a driver can publish less than what is in use.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from dra.pointer import member
from dra.quantity import Quantity
from dra.validation.fields.limits import some
from dra.validation.problem import Located, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dra.objects import DeviceRequestAllocationResult, ResourceClaim
    from dra.validation.fleet.published import Fleet, Published

DeviceId = tuple[str, str, str]


class Holder(NamedTuple):
    """A claim that may hold devices, and the number of the judged object that it is; None for the inventory."""

    number: int | None
    claim: ResourceClaim


class _Held(NamedTuple):
    holder: Holder
    path: str
    result: DeviceRequestAllocationResult

    @property
    def name(self) -> str:
        metadata = self.holder.claim.metadata
        return f"{metadata.namespace or 'default'}/{metadata.name}"


def held_problems(holders: Sequence[Holder], fleet: Fleet) -> Iterator[Located]:
    """Judge the allocations of all claims together; results with admin access hold nothing."""
    by_device: dict[DeviceId, list[_Held]] = defaultdict(list)
    for holder in holders:
        allocation = holder.claim.status.allocation
        for index, result in enumerate(allocation.devices.results if allocation is not None else ()):
            if not result.admin_access:
                path = f"/status/allocation/devices/results/{index}"
                by_device[result.driver, result.pool, result.device].append(_Held(holder, path, result))
    if not any(one.holder.number is not None for held in by_device.values() for one in held):
        return
    published = {(one.driver, one.pool, one.device.name): one for one in fleet.devices}
    for device, held in by_device.items():
        yield from _twice(device, held)
        if fleet.devices:
            yield from _device(device, held, published.get(device))
    yield from _counters(by_device, published, fleet)


def _twice(device: DeviceId, held: Sequence[_Held]) -> Iterator[Located]:
    whole = [one for one in held if one.result.share_id is None]
    if not whole or len(held) < 2:
        return
    names = list(dict.fromkeys(one.name for one in held))
    for one in held:
        others = some([other for other in names if other != one.name] or names, 3)
        how = "is held" if one in whole else "is shared"
        yield from _problems_of([one], "D601", "", f"{'/'.join(device)} {how}, and held by {others} as well")


def _device(device: DeviceId, held: Sequence[_Held], published: Published | None) -> Iterator[Located]:
    if published is None:
        yield from _problems_of(held, "D602", "", f"{'/'.join(device)} is not published, or not any more")
        return
    for name, capacity in published.device.capacity.items():
        amounts = [one.result.consumed_capacity[name] for one in held if name in one.result.consumed_capacity]
        total = sum(amount.nano for amount in amounts)
        if amounts and total > capacity.value.nano:
            used = Quantity.from_nano(total, capacity.value.format)
            takers = [one for one in held if name in one.result.consumed_capacity]
            message = f"{used} of {name} are taken from {'/'.join(device)}, which has {capacity.value}"
            yield from _problems_of(takers, "D603", member("/consumedCapacity", name), message)


def _counters(
    held: Mapping[DeviceId, Sequence[_Held]], published: Mapping[DeviceId, Published], fleet: Fleet
) -> Iterator[Located]:
    """Add up what devices in use consume of counters; each device counts once, however many share it."""
    used: dict[tuple[str, str, str, str], int] = defaultdict(int)
    users: dict[tuple[str, str, str, str], list[_Held]] = defaultdict(list)
    for device, holders in held.items():
        one = published.get(device)
        for consumption in one.device.consumes_counters if one is not None else ():
            for name, counter in consumption.counters.items():
                key = (*device[:2], consumption.counter_set, name)
                used[key] += counter.value.nano
                users[key].extend(holders)
    for key, total in used.items():
        have = fleet.counters.get(key)
        if have is not None and total > have.nano:
            amount = Quantity.from_nano(total, have.format)
            message = f"{amount} of counter {key[3]} of {key[2]!r} in pool {key[1]!r} are in use, it has {have}"
            yield from _problems_of(users[key], "D604", "", message)


def _problems_of(held: Sequence[_Held], code: str, path: str, message: str) -> Iterator[Located]:
    for one in held:
        if one.holder.number is not None:
            yield Located(one.holder.number, Problem(code, one.path + path, message))
