"""DeviceQuotas at work: which lines hold in a namespace, how much of each is used, and `status.used`, which the leader keeps.

Used is what claims hold as they are meant, so what is assumed counts before it is written. People are told both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from allocator.quota import amount_held, claims_in, limits_of, quota_lines
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Merge
from cluster.resources import DEVICE_QUOTAS
from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from allocator.quota import Limit, QuotaLine
    from cluster.informers import Informer
    from cluster.protocol import Cluster
    from dra.objects import DeviceQuota, ResourceClaim
    from dra.stock import Stock

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
        is_written: Callable[[ResourceClaim], bool],
    ) -> None:
        self._cluster = cluster
        self._followed = followed
        self._may_write = may_write
        self._is_written = is_written
        self._denied = ""

    def lines(self, namespace: str, given: Iterable[ResourceClaim], stock: Stock) -> tuple[QuotaLine, ...]:
        """Say what newly allocated claims of a namespace add to which lines."""
        return quota_lines(self._followed.objects.values(), namespace, given, stock)

    def report(self, stock: Stock) -> list[Object]:
        """List every line, with what is written of it and what is only assumed yet."""
        rows: list[Object] = []
        for quota in self._followed.objects.values():
            claims = claims_in(quota.metadata.namespace, stock)
            written = [claim for claim in claims if self._is_written(claim)]
            for limit in limits_of(quota):
                used = amount_held(limit, written, stock)
                assumed = amount_held(limit, claims, stock) - used
                row = {
                    "quota": limit.quota,
                    "key": limit.key,
                    "hard": str(limit.hard),
                    "used": _write(used, limit),
                    "assumed": _write(assumed, limit),
                }
                rows.append(row)
        rows.sort(key=lambda row: (row["quota"], row["key"]))
        return rows

    async def keep(self, stock: Stock) -> None:
        """Write `status.used` where it is not what claims hold. What cannot be written now is written in a later round."""
        for quota in tuple(self._followed.objects.values()):
            if self._may_write():
                await self._keep(quota, stock)

    async def _keep(self, quota: DeviceQuota, stock: Stock) -> None:
        meta = quota.metadata
        status = quota.status
        claims = [claim for claim in claims_in(meta.namespace, stock) if self._is_written(claim)]
        hard: dict[str, Quantity] = {}
        used: dict[str, Quantity] = {}
        for limit in limits_of(quota):
            amount = amount_held(limit, claims, stock)
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
