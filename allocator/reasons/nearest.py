"""Finds the changes of claims with which they would fit on a node that is free.

Every hint was tried with the allocator. If the budget is used up, some hints are missing, but no hint is a guess. The budget counts steps,
so a busy machine gives the same hints. No hint depends on the claims of other pods or on taints, and none proposes another kind of device.
"""

from __future__ import annotations

import re
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import CapacityRequirements, DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dra.quantity import NANO, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dra.objects import DeviceClaim, DeviceClass, DeviceClassSpec

    Fits = Callable[["Claims"], bool | None]  # None if undecided

Body = ExactDeviceRequest | DeviceSubRequest
Claims = tuple[ResourceClaim, ...]
_GRAINS = ((1 << 30, 1 << 20), (1 << 20, 1 << 10))
TRIES = 400
PIECES = range(2, 9)  # numbers of devices over which a capacity that is too large is split
_DRIVER = re.compile(r"device\.driver\s*==\s*['\"]([^'\"]+)['\"]")


class Kind(StrEnum):
    """The kind of change."""

    AMOUNT = "amount"
    SPLIT = "split"
    COUNT = "count"
    CONSTRAINT = "constraint"
    SELECTOR = "selector"
    CLASS = "class"


class NearestFit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change with which the claims fit. `value` is the value to request instead, or the constraint or selector to remove."""

    kind: Kind
    text: str
    claim: str = ""
    request: str = ""
    value: str = ""


class _Spent(Exception):  # noqa: N818  not an error: the search for hints ends here
    """No tries are left."""


class _NotDecided(Exception):  # noqa: N818  not an error: this hint is left out
    """An attempt was undecided."""


def nearest_fits(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], *, fits: Fits, tries: int = TRIES
) -> list[NearestFit]:
    """Return changes after which claims would fit on a free node; `fits` calls the allocator for that node."""
    tries_left = tries

    def try_once(tried_claims: Claims) -> bool:
        nonlocal tries_left
        if tries_left <= 0:
            raise _Spent
        tries_left -= 1
        fit = fits(tried_claims)
        if fit is None:
            raise _NotDecided
        return fit

    hints: list[NearestFit] = []
    with suppress(_Spent):
        hints.extend(_Finder(tuple(claims), classes, try_once).hints())
    return hints


class _Finder:
    def __init__(self, claims: Claims, classes: Mapping[str, DeviceClass], fits: Callable[[Claims], bool]) -> None:
        self.claims = claims
        self.classes = classes
        self.fits = fits
        # Equal requests of a claim would get the same hint, so only the first of them is considered.
        spots = list(request_positions(claims))[::-1]
        first_equal = {(spot.claim, msgspec.json.encode(spot.body, enc_hook=str)): spot for spot in spots}
        self.spots = list(first_equal.values())[::-1]

    def hints(self) -> Iterator[NearestFit]:
        for spot in self.spots:
            body = spot.body
            if body.capacity is not None:
                for name, amount in body.capacity.requests.items():
                    yield from _decided(self._amount(spot, name, amount))
            if body.allocation_mode == "ExactCount" and body.count > 1:
                yield from _decided(self._count(spot))
        yield from _decided(self._conditions())

    def _count(self, spot: RequestPosition) -> Iterator[NearestFit]:
        asked = spot.body.count
        fits = lambda count: self.fits(with_fields(self.claims, spot, count=count))  # noqa: E731
        if most := largest(asked - 1, fits):
            yield NearestFit(Kind.COUNT, f"{most} of {asked} devices would fit", spot.claim_name, spot.name, str(most))

    def _amount(self, spot: RequestPosition, name: str, amount: Quantity) -> Iterator[NearestFit]:
        most = largest_amount(self.claims, spot, name, amount, self.fits)
        if most is None:
            return
        text = f"the most {name} that fits is {most}, not {amount}"
        yield NearestFit(Kind.AMOUNT, text, spot.claim_name, spot.name, f"{name}={most}")
        if spot.body.allocation_mode != "ExactCount" or spot.body.count != 1:
            return
        step = grain(amount)
        for pieces in PIECES:
            steps = -(-amount.nano // (pieces * step))  # rounded up
            piece = Quantity.from_nano(steps * step, amount.format)
            split = with_amount(self.claims, spot, name, piece)
            if self.fits(with_fields(split, spot, count=pieces)):
                text = f"{pieces} devices with {piece} of {name} each fit"
                yield NearestFit(Kind.SPLIT, text, spot.claim_name, spot.name, f"{pieces} x {name}={piece}")
                return

    def _conditions(self) -> Iterator[NearestFit]:
        claims = self.claims
        for at, claim in enumerate(claims):
            for number, constraint in enumerate(claim.spec.devices.constraints):
                if not self.fits(without_constraint(claims, at, number)):
                    continue
                kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
                attribute = constraint.match_attribute or constraint.distinct_attribute or ""
                text = f"would fit without the constraint {kind} {attribute}"
                yield NearestFit(Kind.CONSTRAINT, text, claim=claim.metadata.key, value=attribute)
        for spot in self.spots:
            for number, selector in enumerate(spot.body.selectors):
                expression = selector.cel.expression if selector.cel else ""
                if "device.driver" in expression:
                    continue  # without this selector, the claim may get another kind of device
                other_selectors = tuple(selector for at, selector in enumerate(spot.body.selectors) if at != number)
                if self.fits(with_fields(claims, spot, selectors=other_selectors)):
                    text = f"would fit without the selector {expression}"
                    yield NearestFit(Kind.SELECTOR, text, spot.claim_name, spot.name, expression)
            requested_class = spot.body.device_class_name
            # Sorted by name, because the order of informers is not deterministic.
            of_same_kind = (name for name in sorted(self.classes) if self._is_same_kind(name, requested_class))
            fitting = [name for name in of_same_kind if self.fits(with_fields(claims, spot, device_class_name=name))]
            if fitting:
                text = f"would fit with the class {' or '.join(fitting)} instead of {requested_class}"
                yield NearestFit(Kind.CLASS, text, spot.claim_name, spot.name, fitting[0])

    def _is_same_kind(self, name: str, requested: str) -> bool:
        """Return whether another class has the resource name of the requested class, or selects devices of the same driver."""
        if name == requested or requested not in self.classes:
            return False
        spec, requested_spec = self.classes[name].spec, self.classes[requested].spec
        key, drivers = requested_spec.extended_resource_name, drivers_of(requested_spec)
        return bool(key and spec.extended_resource_name == key) or bool(drivers and drivers_of(spec) == drivers)


def drivers_of(spec: DeviceClassSpec) -> set[str]:
    """Return the drivers that the selectors of a class name."""
    expressions = [selector.cel.expression for selector in spec.selectors if selector.cel]
    return {driver for expression in expressions for driver in _DRIVER.findall(expression)}


def _decided(hints: Iterator[NearestFit]) -> Iterator[NearestFit]:
    """Yield hints until an attempt is undecided."""
    with suppress(_NotDecided):
        yield from hints


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
    devices = claims[claim].spec.devices
    constraints = tuple([constraint for at, constraint in enumerate(devices.constraints) if at != number])
    return _with_devices(claims, claim, replace(devices, constraints=constraints))


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
