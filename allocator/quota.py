"""Quota: how much of what a DeviceQuota limits the claims of a namespace hold, and which line a decision would cross.

What counts, and how much of it, is `dra.stock.amounts`' business; amounts are in nano-units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.quantity import Quantity
from dra.stock import DEVICES, amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import DeviceQuota, ResourceClaim
    from dra.stock import Amounts, Stock


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


def amount_of(limit: Limit, held: Amounts) -> int:
    """Say how much is held of what a line limits."""
    return held.get((limit.class_name, limit.what), 0)


def lines(limits: Iterable[Limit], asked: Amounts, held: Amounts) -> tuple[QuotaLine, ...]:
    """Say what is added to which lines, beside what is held in the namespace already."""
    found: list[QuotaLine] = []
    for limit in limits:
        more = amount_of(limit, asked)
        if more:
            used = amount_of(limit, held)
            line = QuotaLine(f"{limit.quota}: {limit.key}", more, limit.hard.nano, used)
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
    if not limits:
        return ()
    asked = total(amounts_of(claim, stock.pages_of) for claim in given)
    held = stock.sums.get(namespace, {})
    return lines(limits, asked, held)


def _is_readable(key: str) -> bool:
    class_name, _, what = key.partition("/")
    return bool(class_name and what)
