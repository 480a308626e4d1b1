"""DeviceQuotas: which lines hold in a namespace, how much of each is used, and `status.used`, which the leader keeps.

A line counts claims as they are meant, so a reservation counts before it is written. Reports tell both figures.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Merge
from cluster.resources import DEVICE_QUOTAS
from dra.policy import amount_of, concerns, held_of_quota, limits_of, quota_lines, quota_scope
from dra.quantity import Quantity
from dra.stock import amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from allocator.service.knowledge import Knowledge, Lead
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.objects import DeviceQuota, ObjectMeta, Pod, ResourceClaim
    from dra.policy import Limit, QuotaLine
    from dra.raw import Object
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]  # by namespace and name
    # What newly allocated claims of a pod add to which lines.
    QuotaLines = Callable[[Pod, Iterable[ResourceClaim], Stock], tuple[QuotaLine, ...]]

logger = logging.getLogger("drawbridge.allocator")


class StatusWriter:
    """Writes statuses of one kind on the version that was seen. Why that is refused is logged once."""

    def __init__(self, cluster: Cluster, kind: Resource[Any]) -> None:
        self._cluster = cluster
        self._kind = kind
        self._denied = ""

    async def write(self, meta: ObjectMeta, status: Object) -> bool:
        """Write a status; say whether that was done. An object that has changed meanwhile is seen in the next round."""
        patch = Merge({"metadata": {"resourceVersion": meta.resource_version}, "status": status})
        try:
            await self._cluster.patch(self._kind, meta.name, patch, meta.namespace or None, subresource="status")
        except (Conflict, NotFound):
            return False
        except ApiError as error:
            if error.message != self._denied:
                problem = {"problem": error.message}
                logger.warning("the status of a %s could not be written", self._kind.kind, extra=problem)
            self._denied = error.message
            return False
        self._denied = ""
        return True


class Quotas:
    """The quotas of a cluster."""

    def __init__(self, cluster: Cluster, knowledge: Knowledge) -> None:
        self._statuses = StatusWriter(cluster, DEVICE_QUOTAS)
        self._knowledge = knowledge

    def unknown(self, namespace: str) -> str:
        """Say that a namespace has quotas beyond what is kept in memory of one namespace; "" if all of its quotas are known."""
        quotas = self._knowledge.quotas
        if (namespace, "") not in quotas.set_aside:
            return ""
        return (
            f"namespace {namespace} has DeviceQuotas beyond its share of the allocator's memory: delete or shorten them"
        )

    def lines(self, pod: Pod, given: Iterable[ResourceClaim], stock: Stock) -> tuple[QuotaLine, ...]:
        """Say what newly allocated claims of a pod add to which lines."""
        return _lines(self._knowledge.quotas.objects.values(), self._knowledge.pod, pod, given, stock)

    def lines_among(self, pods: Mapping[tuple[str, str], Pod]) -> QuotaLines:
        """Return the function that says the same of the quotas as they are now, among these pods by namespace and name."""

        def find(namespace: str, name: str) -> Pod | None:
            return pods.get((namespace, name))

        return partial(_lines, tuple(self._knowledge.quotas.objects.values()), find)

    def report(self, stock: Stock, unwritten: Iterable[ResourceClaim] = ()) -> list[Object]:
        """List every line, with what is written of it and what is only assumed yet.

        `unwritten` are the claims that a stock has as they are meant, and not as the API server has them.
        """
        rows: list[Object] = []
        assumed = _assumed(unwritten, stock)
        for quota in self._knowledge.quotas.objects.values():
            amounts = held_of_quota(quota, stock, self._knowledge.pod)
            meant = self._of(quota, assumed, stock)
            for limit in limits_of(quota):
                more = amount_of(limit, meant)
                used = amount_of(limit, amounts) - more
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

    async def keep(self, stock: Stock, unwritten: Iterable[ResourceClaim], lead: Lead) -> None:
        """Write `status.used` where it is not what claims hold. A write that fails is repeated in a later round."""
        assumed = _assumed(unwritten, stock)
        for quota in tuple(self._knowledge.quotas.objects.values()):
            if not lead.may_write():
                return
            amounts = held_of_quota(quota, stock, self._knowledge.pod)
            meant = self._of(quota, assumed, stock)
            status = quota.status
            hard: dict[str, Quantity] = {}
            used: dict[str, Quantity] = {}
            for limit in limits_of(quota):
                amount = amount_of(limit, amounts) - amount_of(limit, meant)
                hard[limit.key] = limit.hard
                used[limit.key] = Quantity.from_nano(amount, limit.hard.format)
            if status.hard == hard and status.used == used:
                continue
            # A key that is no more is taken away by a null.
            written = {
                "hard": dict.fromkeys(status.hard) | {key: str(amount) for key, amount in hard.items()},
                "used": dict.fromkeys(status.used) | {key: str(amount) for key, amount in used.items()},
            }
            await self._statuses.write(quota.metadata, written)

    def _of(self, quota: DeviceQuota, assumed: Mapping[str, list[ResourceClaim]], stock: Stock) -> Amounts:
        """Say how much of what is assumed a quota is about."""
        claims = assumed.get(quota.metadata.namespace or "default", ())
        return total(
            amounts_of(claim, stock.pages_of) for claim in claims if concerns(quota, claim, self._knowledge.pod)
        )


def _lines(
    quotas: Iterable[DeviceQuota], find_pod: FindPod, pod: Pod, given: Iterable[ResourceClaim], stock: Stock
) -> tuple[QuotaLine, ...]:
    requested = total(amounts_of(claim, stock.pages_of) for claim in given)
    used_by_claims = partial(held_of_quota, stock=stock, find_pod=find_pod)
    return quota_lines(quotas, quota_scope(pod), requested, used_by_claims)


def _assumed(unwritten: Iterable[ResourceClaim], stock: Stock) -> dict[str, list[ResourceClaim]]:
    """List the claims that a stock has and that are not written yet, by namespace."""
    found: dict[str, list[ResourceClaim]] = {}
    for claim in unwritten:
        meta = claim.metadata
        meant = stock.claims.get(meta.key)
        if meant is not None and meant.metadata.uid == meta.uid:
            found.setdefault(meta.namespace or "default", []).append(meant)
    return found


def _write(amount: int, limit: Limit) -> str:
    return str(Quantity.from_nano(amount, limit.hard.format))
