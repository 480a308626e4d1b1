"""DeviceQuotas at work: which lines hold in a namespace, how much of each is used, and `status.used`, which the leader keeps.

Used is what claims hold as they are meant, so what is assumed counts before it is written. People are told both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from allocator.quota import amount_of, limits_of, quota_lines
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Merge
from cluster.resources import DEVICE_QUOTAS
from dra.quantity import Quantity
from dra.stock import amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from allocator.quota import Limit, QuotaLine
    from cluster.informers import Informer
    from cluster.protocol import Cluster
    from dra.objects import DeviceQuota, ResourceClaim
    from dra.stock import Amounts, Stock

logger = logging.getLogger("drawbridge.allocator")
Object = dict[str, Any]


class Quotas:
    """The quotas of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        followed: Informer[DeviceQuota],
        *,
        may_write: Callable[[], bool],
        unwritten: Callable[[], Iterable[ResourceClaim]],
    ) -> None:
        """`unwritten` lists the claims that a stock has as they are meant, and not as the API server has them."""
        self._cluster = cluster
        self._followed = followed
        self._may_write = may_write
        self._unwritten = unwritten
        self._denied = ""

    def lines(self, namespace: str, given: Iterable[ResourceClaim], stock: Stock) -> tuple[QuotaLine, ...]:
        """Say what newly allocated claims of a namespace add to which lines."""
        return quota_lines(self._followed.objects.values(), namespace, given, stock)

    def report(self, stock: Stock) -> list[Object]:
        """List every line, with what is written of it and what is only assumed yet."""
        rows: list[Object] = []
        assumed = self._assumed(stock)
        for quota in self._followed.objects.values():
            namespace = quota.metadata.namespace or "default"
            held = stock.sums.get(namespace, {})
            meant = assumed.get(namespace, {})
            for limit in limits_of(quota):
                more = amount_of(limit, meant)
                used = amount_of(limit, held) - more
                row = {
                    "quota": limit.quota,
                    "key": limit.key,
                    "hard": str(limit.hard),
                    "used": _write(used, limit),
                    "assumed": _write(more, limit),
                }
                rows.append(row)
        rows.sort(key=lambda row: (row["quota"], row["key"]))
        return rows

    async def keep(self, stock: Stock) -> None:
        """Write `status.used` where it is not what claims hold. What cannot be written now is written in a later round."""
        assumed = self._assumed(stock)
        for quota in tuple(self._followed.objects.values()):
            if self._may_write():
                namespace = quota.metadata.namespace or "default"
                held = stock.sums.get(namespace, {})
                await self._keep(quota, held, assumed.get(namespace, {}))

    def _assumed(self, stock: Stock) -> dict[str, Amounts]:
        """Say how much of what a stock has is not written yet, by namespace."""
        parts: dict[str, list[Amounts]] = {}
        for claim in self._unwritten():
            key = claim.metadata.key
            meant = stock.claims.get(key)
            if meant is None or meant.metadata.uid != claim.metadata.uid:
                continue
            namespace = claim.metadata.namespace or "default"
            here = parts.setdefault(namespace, [])
            amounts = amounts_of(meant, stock.pages_of)
            here.append(amounts)
        return {namespace: total(here) for namespace, here in parts.items()}

    async def _keep(self, quota: DeviceQuota, held: Amounts, assumed: Amounts) -> None:
        meta = quota.metadata
        status = quota.status
        hard: dict[str, Quantity] = {}
        used: dict[str, Quantity] = {}
        for limit in limits_of(quota):
            amount = amount_of(limit, held) - amount_of(limit, assumed)
            hard[limit.key] = limit.hard
            used[limit.key] = Quantity.from_nano(amount, limit.hard.format)
        if status.hard == hard and status.used == used:
            return
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"hard": _replacing(status.hard, hard), "used": _replacing(status.used, used)},
        }
        try:
            await self._cluster.patch(DEVICE_QUOTAS, meta.name, Merge(patch), meta.namespace, subresource="status")
        except (Conflict, NotFound):
            return  # it is another by now; the next round sees it
        except ApiError as error:
            self._complain(error.message)
        else:
            self._denied = ""

    def _complain(self, problem: str) -> None:
        if problem != self._denied:
            logger.warning("what a quota's namespace uses could not be written", extra={"problem": problem})
        self._denied = problem


def _write(amount: int, limit: Limit) -> str:
    return str(Quantity.from_nano(amount, limit.hard.format))


def _replacing(old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> dict[str, str | None]:
    """Write amounts as a merge patch that leaves no key of the old ones."""
    gone: dict[str, str | None] = dict.fromkeys(old)
    return gone | {key: str(amount) for key, amount in new.items()}
