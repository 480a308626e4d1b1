"""Rules about allocations: conflicts of claims with each other, and with the published devices.

An allocator by itself causes no such conflicts, but the API server does not prevent them: two allocators can allocate one device twice,
and a driver can publish less than is in use.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from dra.finding import Finding, finding_at
from dra.pointer import member
from dra.quantity import Quantity
from dra.validation.fields.limits import list_or_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.objects import DeviceRequestAllocationResult, ResourceClaim
    from dra.validation.fleet.published import Fleet

DeviceId = tuple[str, str, str]
_Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter


class ClaimHolder(NamedTuple):
    """A claim that may hold devices. `number` is its position among the judged objects; None if it is in the inventory."""

    number: int | None
    claim: ResourceClaim


class _AllocatedDevice(NamedTuple):
    holder: ClaimHolder
    path: str
    result: DeviceRequestAllocationResult


def held_problems(holders: Sequence[ClaimHolder], fleet: Fleet) -> Iterator[tuple[int, Finding]]:
    """Judge the allocations of all claims together. Results with admin access hold nothing."""
    by_device: dict[DeviceId, list[_AllocatedDevice]] = defaultdict(list)
    judged = False
    for holder in holders:
        allocation = holder.claim.status.allocation
        for index, result in enumerate(allocation.devices.results if allocation is not None else ()):
            if not result.admin_access:
                held_device = _AllocatedDevice(holder, f"/status/allocation/devices/results/{index}", result)
                by_device[result.driver, result.pool, result.device].append(held_device)
                judged = judged or holder.number is not None
    if not judged:
        return
    published = {device.id: device for device in fleet.devices}
    for device, held_devices in by_device.items():
        device_text = "/".join(device)
        # It is a conflict if a device has several holders and one of them holds the whole device.
        whole_holders = [held for held in held_devices if held.result.share_id is None]
        names = list(dict.fromkeys(held.holder.claim.metadata.key for held in held_devices))
        for held in held_devices if whole_holders and len(held_devices) > 1 else ():
            others = [name for name in names if name != held.holder.claim.metadata.key]
            part = "all" if held in whole_holders else "a share"
            message = (
                f"the claim holds {part} of {device_text}, which is also held by {list_or_none(others or names, 3)}"
            )
            yield from _problems_of([held], "D601", "", message)
        if not fleet.devices:
            continue
        published_device = published.get(device)
        if published_device is None:
            yield from _problems_of(held_devices, "D602", "", f"{device_text} is not published")
            continue
        for name, capacity in published_device.device.capacity.items():
            takers = [held for held in held_devices if name in held.result.consumed_capacity]
            total = sum(held.result.consumed_capacity[name].nano for held in takers)
            if takers and total > capacity.value.nano:
                taken = Quantity.from_nano(total, capacity.value.format)
                message = f"{device_text} has {capacity.value} of {name}, and {taken} of it are allocated"
                yield from _problems_of(takers, "D603", member("/consumedCapacity", name), message)
    # How much the devices in use consume of each counter. A shared device consumes its counters once.
    used: dict[_Counter, int] = defaultdict(int)
    users: dict[_Counter, list[_AllocatedDevice]] = defaultdict(list)
    for device, held_devices in by_device.items():
        published_device = published.get(device)
        for consumption in published_device.device.consumes_counters if published_device is not None else ():
            for name, counter in consumption.counters.items():
                key = (*device[:2], consumption.counter_set, name)
                used[key] += counter.value.nano
                users[key].extend(held_devices)
    for key, total in used.items():
        declared = fleet.counters.get(key)
        if declared is not None and total > declared.nano:
            _, pool, counter_set, name = key
            amount = Quantity.from_nano(total, declared.format)
            message = f"counter {name} of {counter_set!r} in pool {pool!r} is {declared}, and {amount} of it are in use"
            yield from _problems_of(users[key], "D604", "", message)


def _problems_of(
    held_devices: Sequence[_AllocatedDevice], code: str, path: str, message: str
) -> Iterator[tuple[int, Finding]]:
    for held in held_devices:
        if held.holder.number is not None:
            yield (held.holder.number, finding_at(code, held.path + path, message))
