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
_Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter


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
        return self.holder.claim.metadata.key


def held_problems(holders: Sequence[Holder], fleet: Fleet) -> Iterator[Located]:
    """Judge the allocations of all claims together; results with admin access hold nothing."""
    by_device: dict[DeviceId, list[_Held]] = defaultdict(list)
    judged = False
    for holder in holders:
        allocation = holder.claim.status.allocation
        if allocation is None:
            continue
        for index, result in enumerate(allocation.devices.results):
            if result.admin_access:
                continue
            path = f"/status/allocation/devices/results/{index}"
            device = result.driver, result.pool, result.device
            by_device[device].append(_Held(holder, path, result))
            judged = judged or holder.number is not None
    if not judged:
        return
    published = {(one.driver, one.pool, one.device.name): one for one in fleet.devices}
    for device, held in by_device.items():
        yield from _twice(device, held)
        if fleet.devices:
            there = published.get(device)
            yield from _device(device, held, there)
    yield from _counters(by_device, published, fleet)


def _twice(device: DeviceId, held: Sequence[_Held]) -> Iterator[Located]:
    whole = [one for one in held if one.result.share_id is None]
    if not whole or len(held) < 2:
        return
    shown = "/".join(device)
    names = list(dict.fromkeys(one.name for one in held))
    for one in held:
        other_names = [name for name in names if name != one.name]
        others = some(other_names or names, 3)
        how = "is held" if one in whole else "is shared"
        message = f"{shown} {how}, and held by {others} as well"
        yield from _problems_of([one], "D601", "", message)


def _device(device: DeviceId, held: Sequence[_Held], published: Published | None) -> Iterator[Located]:
    shown = "/".join(device)
    if published is None:
        message = f"{shown} is not published, or not any more"
        yield from _problems_of(held, "D602", "", message)
        return
    for name, capacity in published.device.capacity.items():
        there = capacity.value
        total = 0
        takers: list[_Held] = []
        for one in held:
            consumed = one.result.consumed_capacity
            if name in consumed:
                total += consumed[name].nano
                takers.append(one)
        if takers and total > there.nano:
            used = Quantity.from_nano(total, there.format)
            message = f"{used} of {name} are taken from {shown}, which has {there}"
            path = member("/consumedCapacity", name)
            yield from _problems_of(takers, "D603", path, message)


def _counters(
    held: Mapping[DeviceId, Sequence[_Held]],
    published: Mapping[DeviceId, Published],
    fleet: Fleet,
) -> Iterator[Located]:
    """Add up what devices in use consume of counters; each device counts once, however many share it."""
    used: dict[_Counter, int] = defaultdict(int)
    users: dict[_Counter, list[_Held]] = defaultdict(list)
    for device, holders in held.items():
        one = published.get(device)
        if one is None:
            continue
        for consumption in one.device.consumes_counters:
            for name, counter in consumption.counters.items():
                key = (one.driver, one.pool, consumption.counter_set, name)
                used[key] += counter.value.nano
                users[key].extend(holders)
    for key, total in used.items():
        have = fleet.counters.get(key)
        if have is None or total <= have.nano:
            continue
        _, pool, counter_set, name = key
        amount = Quantity.from_nano(total, have.format)
        message = f"{amount} of counter {name} of {counter_set!r} in pool {pool!r} are in use, it has {have}"
        yield from _problems_of(users[key], "D604", "", message)


def _problems_of(held: Sequence[_Held], code: str, path: str, message: str) -> Iterator[Located]:
    for one in held:
        if one.holder.number is not None:
            yield Located(one.holder.number, Problem(code, one.path + path, message))
