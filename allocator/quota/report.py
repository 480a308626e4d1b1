"""What quotas leave: of each line how much is used and by which claims, how much waits for devices, and which keys limit nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dra.policy import amount_of, concerns, held_of_quota, limits_of, misread, write_amount
from dra.stock import amounts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dra.objects import DeviceQuota, Pod, ResourceClaim
    from dra.policy import Limit
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]
    Waiting = Callable[[DeviceQuota], Amounts]


class HolderOfLine(msgspec.Struct, frozen=True):
    """A claim that has some of what a line limits, and the pods that it is reserved for."""

    claim: str
    pods: tuple[str, ...]
    amount: str


class LineReport(msgspec.Struct, frozen=True):
    """One line of a quota."""

    key: str
    hard: str
    used: str
    waiting: str  # the most that pods and claims without devices may come to hold
    left: str
    holders: tuple[HolderOfLine, ...]


class QuotaReport(msgspec.Struct, frozen=True):
    """One quota, as namespace/name."""

    quota: str
    lines: tuple[LineReport, ...]
    idle: str  # which keys limit nothing, and why; "" if all do


class _Holding(NamedTuple):
    """What one claim has."""

    claim: ResourceClaim
    amounts: Amounts


def report_quota(quota: DeviceQuota, stock: Stock, find_pod: FindPod, waiting: Waiting) -> QuotaReport:
    """Say what there is of each line."""
    held = held_of_quota(quota, stock, find_pod)
    waits = waiting(quota)
    holdings = list(_holdings(quota, stock, find_pod))
    lines = tuple(_line(limit, held, waits, holdings) for limit in limits_of(quota))
    return QuotaReport(quota.metadata.key, lines, misread(quota))


def _holdings(quota: DeviceQuota, stock: Stock, find_pod: FindPod) -> Iterator[_Holding]:
    namespace = quota.metadata.namespace or "default"
    for key in sorted(stock.claims):
        claim = stock.claims[key]
        theirs = claim.metadata.namespace or "default"
        if namespace == theirs and concerns(quota, claim, find_pod):
            amounts = amounts_of(claim, stock.pages_of)
            yield _Holding(claim, amounts)


def _line(limit: Limit, held: Amounts, waits: Amounts, holdings: Iterable[_Holding]) -> LineReport:
    used = amount_of(limit, held)
    coming = amount_of(limit, waits)
    left = max(0, limit.hard.nano - used - coming)
    has = write_amount(limit.key, used)
    waiting = write_amount(limit.key, coming)
    holders = tuple(_holders(limit, holdings))
    return LineReport(
        limit.key,
        str(limit.hard),
        has,
        waiting,
        write_amount(limit.key, left),
        holders,
    )


def _holders(limit: Limit, holdings: Iterable[_Holding]) -> Iterator[HolderOfLine]:
    for claim, amounts in holdings:
        amount = amount_of(limit, amounts)
        if not amount:
            continue
        consumers = claim.status.reserved_for
        pods = tuple(consumer.name for consumer in consumers if consumer.is_pod)
        said = write_amount(limit.key, amount)
        yield HolderOfLine(claim.metadata.key, pods, said)
