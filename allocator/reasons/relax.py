"""Relaxes claims: each function returns the claims with one change, or the largest amount that fits.

A spot is an exact request, or one alternative of a firstAvailable request. `allocator.reasons.nearest` calls the allocator with the
changed claims.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import CapacityRequirements, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dra.quantity import NANO, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dra.objects import DeviceClaim

Body = ExactDeviceRequest | DeviceSubRequest
Claims = tuple[ResourceClaim, ...]

_GRAINS = ((1 << 30, 1 << 20), (1 << 20, 1 << 10))


class RequestPosition(msgspec.Struct, frozen=True):
    """The position of a request body in a list of claims. `alternative` is None for an exact request."""

    claim: int
    request: int
    alternative: int | None
    body: Body
    claim_name: str
    name: str


def request_positions(claims: Sequence[ResourceClaim]) -> Iterator[RequestPosition]:
    """Yield the position of every exact request and every alternative."""
    for index, claim in enumerate(claims):
        key = claim.metadata.key
        for number, request in enumerate(claim.spec.devices.requests):
            name = request.name
            exactly = request.exactly
            if exactly is not None:
                yield RequestPosition(index, number, None, exactly, key, name)
            for alternative, sub in enumerate(request.first_available):
                yield RequestPosition(index, number, alternative, sub, key, f"{name}/{sub.name}")


def with_fields(claims: Claims, spot: RequestPosition, **fields: object) -> Claims:
    """Return the claims with these fields of one request replaced."""
    old_devices = claims[spot.claim].spec.devices
    requests = list(old_devices.requests)
    request = requests[spot.request]
    if spot.alternative is None:
        assert request.exactly is not None
        requests[spot.request] = replace(request, exactly=replace(request.exactly, **fields))
    else:
        subs = list(request.first_available)
        subs[spot.alternative] = replace(subs[spot.alternative], **fields)
        requests[spot.request] = replace(request, first_available=tuple(subs))
    return _with_devices(claims, spot.claim, replace(old_devices, requests=tuple(requests)))


def with_amount(claims: Claims, spot: RequestPosition, name: str, amount: Quantity) -> Claims:
    """Return the claims with another requested amount of one capacity."""
    requested = spot.body.capacity.requests if spot.body.capacity else {}
    return with_fields(claims, spot, capacity=CapacityRequirements(requests={**requested, name: amount}))


def without_constraint(claims: Claims, claim: int, number: int) -> Claims:
    spec = claims[claim].spec
    constraints = list(spec.devices.constraints)
    del constraints[number]
    devices = replace(spec.devices, constraints=tuple(constraints))
    return _with_devices(claims, claim, devices)


def grain(amount: Quantity) -> int:
    """Return the granularity, in nano-units, of suggested amounts of this size."""
    for size, step in _GRAINS:
        if amount.nano >= size * NANO and amount.nano % (step * NANO) == 0:
            return step * NANO
    return NANO if amount.nano % NANO == 0 else NANO // 1000


def largest(top: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number from 1 to `top` that fits; 0 if 1 does not fit."""
    if top < 1 or not fits(1):
        return 0
    low, high = 1, top + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def largest_amount(
    claims: Claims, spot: RequestPosition, name: str, below: Quantity, fits: Callable[[Claims], bool]
) -> Quantity | None:
    """Return the largest amount below `below` that a request could get of a capacity; None if it could get nothing."""
    step = grain(below)

    def amount_of(steps: int) -> Quantity:
        return Quantity.from_nano(steps * step, below.format)

    def fits_with(steps: int) -> bool:
        smaller = with_amount(claims, spot, name, amount_of(steps))
        return fits(smaller)

    max_steps = (below.nano - 1) // step
    steps = largest(max_steps, fits_with)
    return amount_of(steps) if steps else None


def _with_devices(claims: Claims, index: int, devices: DeviceClaim) -> Claims:
    changed = replace(claims[index], spec=replace(claims[index].spec, devices=devices))
    return (*claims[:index], changed, *claims[index + 1 :])
