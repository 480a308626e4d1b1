"""Quota: how much of what a DeviceQuota limits the claims of a namespace hold, and which line a decision would cross.

What counts is what was allocated, not what was asked for: one device a result, and of a capacity the share that was taken, or all of a
device that is taken whole. Access for admins is free. Amounts are in nano-units, as quantities keep them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import DeviceQuota, DeviceRequestAllocationResult, ResourceClaim
    from dra.stock import Stock

DEVICES = "devices"


class Limit(msgspec.Struct, frozen=True):
    """One line of a quota."""

    quota: str  # namespace/name
    key: str  # as it is written: class/devices or class/capacity
    hard: Quantity

    @property
    def class_name(self) -> str:
        return self.key.partition("/")[0]

    @property
    def what(self) -> str:
        return self.key.partition("/")[2]


class QuotaLine(msgspec.Struct, frozen=True):
    """What a decision adds to one line of a quota, and what is used of it already."""

    key: str  # whatever names the line, such as namespace/quota: class/devices
    asked: int
    hard: int
    used: int = 0

    @property
    def left(self) -> int:
        """The largest amount that would pass."""
        return max(0, self.hard - self.used)

    @property
    def exceeded(self) -> bool:
        return self.asked > self.left

    def write(self, amount: int) -> str:
        """Write an amount of this line for people."""
        counts = self.key.endswith(f"/{DEVICES}")
        return str(Quantity.from_nano(amount, "DecimalSI" if counts else "BinarySI"))

    def facts(self) -> dict[str, str]:
        """What is known of it, for programs."""
        amounts = {"asked": self.asked, "hard": self.hard, "used": self.used, "largest": self.left}
        return {"line": self.key} | {name: self.write(amount) for name, amount in amounts.items()}

    def __str__(self) -> str:
        asked, used, hard = map(self.write, (self.asked, self.used, self.hard))
        most = self.write(self.left)
        return f"quota {self.key}: {asked} asked for, {used} of {hard} used; the most that would pass is {most}"


def limits_of(quota: DeviceQuota) -> Iterator[Limit]:
    """List the lines of a quota that can be read."""
    meta = quota.metadata
    name = f"{meta.namespace or 'default'}/{meta.name}"
    for key, hard in quota.spec.hard.items():
        if _is_readable(key):
            yield Limit(name, key, hard)


def misread(quota: DeviceQuota) -> str:
    """Say which lines of a quota cannot be read, and so limit nothing; "" if all can."""
    keys = [key for key in quota.spec.hard if not _is_readable(key)]
    if not keys:
        return ""
    return f"limits nothing by {', '.join(map(repr, keys))}: a key is <class>/{DEVICES} or <class>/<capacity>"


def amount_held(limit: Limit, claims: Iterable[ResourceClaim], stock: Stock) -> int:
    """Add up what claims hold of what a line limits."""
    return sum(amount for claim in claims for amount in _amounts(limit, claim, stock))


def lines(
    limits: Iterable[Limit], given: Iterable[ResourceClaim], holders: Iterable[ResourceClaim], stock: Stock
) -> tuple[QuotaLine, ...]:
    """Say what newly allocated claims add to which lines, beside what the holders of the namespace hold."""
    fresh, others = tuple(given), tuple(holders)
    found: list[QuotaLine] = []
    for limit in limits:
        asked = amount_held(limit, fresh, stock)
        if asked:
            used = amount_held(limit, others, stock)
            line = QuotaLine(f"{limit.quota}: {limit.key}", asked, limit.hard.nano, used)
            found.append(line)
    return tuple(found)


def quota_lines(
    quotas: Iterable[DeviceQuota], namespace: str, given: Iterable[ResourceClaim], stock: Stock
) -> tuple[QuotaLine, ...]:
    """Say what newly allocated claims of a namespace add to which lines of its quotas, beside what a stock has there."""
    limits: list[Limit] = []
    for quota in quotas:
        if (quota.metadata.namespace or "default") == namespace:
            limits += limits_of(quota)
    return lines(limits, given, claims_in(namespace, stock), stock) if limits else ()


def claims_in(namespace: str, stock: Stock) -> list[ResourceClaim]:
    """List the claims of a namespace."""
    prefix = f"{namespace}/"
    return [claim for key, claim in stock.claims.items() if key.startswith(prefix)]


def _is_readable(key: str) -> bool:
    class_name, _, what = key.partition("/")
    return bool(class_name and what)


def _amounts(limit: Limit, claim: ResourceClaim, stock: Stock) -> Iterator[int]:
    allocation = claim.status.allocation
    if allocation is None:
        return
    requests = _requests_of(claim, limit.class_name)
    for result in allocation.devices.results:
        if result.admin_access or result.request not in requests:
            continue
        if limit.what == DEVICES:
            yield Quantity.from_int(1).nano
        else:
            yield _capacity(result, limit.what, stock)


def _requests_of(claim: ResourceClaim, class_name: str) -> set[str]:
    """Name the requests of a class, as results name them."""
    names: set[str] = set()
    for request in claim.spec.devices.requests:
        exactly = request.exactly
        if exactly is not None and exactly.device_class_name == class_name:
            names.add(request.name)
        for one in request.first_available:
            if one.device_class_name == class_name:
                names.add(f"{request.name}/{one.name}")
    return names


def _capacity(result: DeviceRequestAllocationResult, name: str, stock: Stock) -> int:
    """Say how much of a capacity a result takes."""
    if result.consumed_capacity:
        share = result.consumed_capacity.get(name)
        return share.nano if share is not None else 0
    for page in stock.pages_of.get((result.driver, result.pool), ()):
        for device in page.devices:
            if device.name == result.device:
                whole = device.capacity.get(name)
                return whole.value.nano if whole is not None else 0
    return 0
