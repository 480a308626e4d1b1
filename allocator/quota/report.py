"""The report on a DeviceQuota: the used and pending amounts of each limit, the claims that hold devices, and keys without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.policy import amount_of, concerns, held_of_quota, limits_of, misread, write_amount
from dra.stock import amounts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.objects import DeviceQuota, Pod, ResourceClaim
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]
    Waiting = Callable[[DeviceQuota], Amounts]


class HolderOfLine(msgspec.Struct, frozen=True):
    """A claim that counts against a limit, and the pods for which the claim is reserved."""

    claim: str
    pods: tuple[str, ...]
    amount: str


class LineReport(msgspec.Struct, frozen=True):
    """One limit of a quota."""

    key: str
    hard: str
    used: str
    pending: str  # the most that pods and claims without devices may get
    remaining: str
    holders: tuple[HolderOfLine, ...]


class QuotaReport(msgspec.Struct, frozen=True, rename="camel"):
    quota: str  # namespace/name
    lines: tuple[LineReport, ...]
    keys_without_effect: str  # which keys have no effect, and why; "" if every key has an effect


def report_quota(
    quota: DeviceQuota, claims: Iterable[ResourceClaim], stock: Stock, find_pod: FindPod, waiting: Waiting
) -> QuotaReport:
    """Report each limit of a quota. `claims` are the claims of its namespace; the holders are listed in the order of `claims`."""
    counted_claims = [claim for claim in claims if concerns(quota, claim, find_pod)]
    amounts = [amounts_of(claim, stock.pages_of) for claim in counted_claims]
    used_by_claims = held_of_quota(quota, stock, find_pod)
    pending_amounts = waiting(quota)
    lines: list[LineReport] = []
    for limit in limits_of(quota):
        used = amount_of(limit, used_by_claims)
        pending = amount_of(limit, pending_amounts)
        holders: list[HolderOfLine] = []
        for claim, amounts_of_claim in zip(counted_claims, amounts, strict=True):
            if amount := amount_of(limit, amounts_of_claim):
                pods = tuple(consumer.name for consumer in claim.status.reserved_for if consumer.is_pod)
                holders.append(HolderOfLine(claim.metadata.key, pods, write_amount(limit.key, amount)))
        line = LineReport(
            limit.key,
            str(limit.hard),
            write_amount(limit.key, used),
            write_amount(limit.key, pending),
            write_amount(limit.key, max(0, limit.hard.nano - used - pending)),
            tuple(holders),
        )
        lines.append(line)
    return QuotaReport(quota.metadata.key, tuple(lines), misread(quota))
