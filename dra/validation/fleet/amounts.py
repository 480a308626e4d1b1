"""How much a request asks for, against the devices that match it: counts, capacities and what policies offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.errors import CapacityError
from dra.pointer import member
from dra.stock import charges
from dra.validation.fields.limits import some
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import DeviceSubRequest, ExactDeviceRequest
    from dra.validation.fleet.published import Matches, Published

    Demand = ExactDeviceRequest | DeviceSubRequest


def amount_problems(demand: Demand, path: str, matches: Matches) -> Problems:
    """Judge how many devices and how much of them a request asks for, of those that match it."""
    devices = matches.devices
    if not devices:
        return
    if demand.count > len(devices) and matches.failure is None:
        message = f"{demand.count} devices are asked for, {len(devices)} match in the whole fleet"
        yield Problem("D305", f"{path}/count", message)
    wanted = demand.capacity.requests if demand.capacity is not None else {}
    if not wanted:
        yield from _check_unsaid(path, devices)
        return
    at = f"{path}/capacity/requests"
    each = [problem for name in wanted for problem in _amount(demand, name, at, devices)]
    yield from each
    if not each and not any(_offers(published, demand) for published in devices):
        yield Problem("D305", at, "no matching device's request policy offers these amounts together")


def _amount(demand: Demand, name: str, path: str, devices: Sequence[Published]) -> Problems:
    assert demand.capacity is not None
    amount = demand.capacity.requests[name]
    at = member(path, name)
    capacities = [one.device.capacity for one in devices]
    values = [capacity[name].value for capacity in capacities if name in capacity]
    if not values:
        published = sorted(set().union(*capacities))
        message = f"no matching device has a capacity {name!r}; they have {some(published)}"
        hint = ""
        bare = name.rpartition("/")[2]
        for key in published:
            if key.rpartition("/")[2] == bare:
                hint = f"write {key}"
                break
        yield Problem("D314", at, message, hint)
        return
    most = max(values)
    if amount > most:
        message = f"{amount} is more than any matching device has: at most {most}"
        yield Problem("D305", at, message)


def _offers(published: Published, demand: Demand) -> bool:
    assert demand.capacity is not None
    capacities = published.device.capacity
    try:
        amounts = charges(demand.capacity.requests, capacities)
    except CapacityError:
        return False
    return amounts is not None and all(amount <= capacities[name].value for name, amount in amounts.items())


def _check_unsaid(path: str, devices: Sequence[Published]) -> Problems:
    """A request for shared devices that names no amount may take everything."""
    shared = [published for published in devices if published.device.allow_multiple_allocations]
    whole = sorted(
        {
            name
            for p in shared
            for name, c in p.device.capacity.items()
            if c.request_policy is None or c.request_policy.default is None
        }
    )
    if shared and len(shared) == len(devices) and whole:
        message = f"the devices are shared, and without capacity.requests all of {', '.join(whole)} is taken"
        yield Problem("D311", path, message, f"say how much of {whole[0]} is needed")
