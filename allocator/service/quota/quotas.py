"""DeviceQuotas: the lines (limits) of a namespace, how much of each line is used, and `status.used`, which the leader writes.

A line counts reservations before they are written into claims. Reports show written and unwritten usage separately.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Merge
from cluster.resources import DEVICE_QUOTAS
from dra.policy import amount_of, concerns, held_of_quota, limits_of, lines_of_claims
from dra.quantity import Quantity
from dra.stock import amounts_of, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from allocator.service.knowledge import Knowledge, Lead
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.objects import DeviceQuota, ObjectMeta, Pod, ResourceClaim
    from dra.policy import Limit, QuotaLine
    from dra.raw import Object
    from dra.stock import Stock

    # Returns the quota lines of a pod, with what the pod's newly allocated claims would add to each line.
    QuotaLines = Callable[[Pod, Iterable[ResourceClaim], Stock], tuple[QuotaLine, ...]]

logger = logging.getLogger("drawbridge.allocator")


class StatusWriter:
    """Writes the status of objects of one kind if they still have the version that was seen. A repeated error is logged only once."""

    def __init__(self, cluster: Cluster, kind: Resource[Any]) -> None:
        self._cluster = cluster
        self._kind = kind
        self._denied = ""

    async def write(self, meta: ObjectMeta, status: Object) -> bool:
        """Write a status, and return whether the write succeeded. An object that has changed meanwhile is handled in the next round."""
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
        """Return a message if a namespace has more quotas than the allocator keeps in memory for one namespace; "" if all are known."""
        quotas = self._knowledge.quotas
        if (namespace, "") not in quotas.set_aside:
            return ""
        return (
            f"namespace {namespace} has DeviceQuotas beyond its share of the allocator's memory: delete or shorten them"
        )

    def lines(self, pod: Pod, given: Iterable[ResourceClaim], stock: Stock) -> tuple[QuotaLine, ...]:
        """Return the quota lines of a pod, with what its newly allocated claims would add to each."""
        return lines_of_claims(self._knowledge.quotas.objects.values(), pod, given, stock, self._knowledge.pod)

    def lines_among(self, pods: Mapping[tuple[str, str], Pod]) -> QuotaLines:
        """Return a function like `lines`, for the current quotas and for these pods (by namespace and name)."""

        def find(namespace: str, name: str) -> Pod | None:
            return pods.get((namespace, name))

        return partial(lines_of_claims, tuple(self._knowledge.quotas.objects.values()), find_pod=find)

    def report(self, stock: Stock, unwritten: Iterable[ResourceClaim] = ()) -> list[Object]:
        """Return a row for each line, with the usage that is written in claims (used) and the usage that is only reserved yet (assumed).

        `unwritten` are the claims whose allocation in the stock is not written to the API server yet.
        """
        rows: list[Object] = []
        assumed = _assumed(unwritten, stock)
        for quota in tuple(self._knowledge.quotas.objects.values()):  # the event loop may change it meanwhile
            for limit, used, assumed_amount in self._uses(quota, assumed, stock):
                row = {
                    "quota": limit.quota,
                    "key": limit.key,
                    "hard": str(limit.hard),
                    "used": str(used),
                    "assumed": str(assumed_amount),
                }
                rows.append(row)
        rows.sort(key=lambda row: (row["quota"], row["key"]))
        return rows

    async def keep(self, stock: Stock, unwritten: Iterable[ResourceClaim], lead: Lead) -> None:
        """Write `status.hard` and `status.used` where they differ from spec and claims. A failed write is repeated in a later round."""
        assumed = _assumed(unwritten, stock)
        for quota in tuple(self._knowledge.quotas.objects.values()):
            if not lead.may_write():
                return
            status = quota.status
            uses = list(self._uses(quota, assumed, stock))
            hard = {limit.key: limit.hard for limit, _, _ in uses}
            used = {limit.key: amount for limit, amount, _ in uses}
            if status.hard == hard and status.used == used:
                continue
            # A merge patch removes a key by null.
            written = {
                "hard": dict.fromkeys(status.hard) | {key: str(amount) for key, amount in hard.items()},
                "used": dict.fromkeys(status.used) | {key: str(amount) for key, amount in used.items()},
            }
            await self._statuses.write(quota.metadata, written)

    def _uses(
        self, quota: DeviceQuota, assumed: Mapping[str, list[ResourceClaim]], stock: Stock
    ) -> Iterator[tuple[Limit, Quantity, Quantity]]:
        """Yield each limit of a quota, with the usage that is written in claims, and the usage that is only reserved yet."""
        find_pod = self._knowledge.pod
        claims = assumed.get(quota.metadata.namespace or "default", ())
        held = held_of_quota(quota, stock, find_pod)
        assumed_amounts = total(
            amounts_of(claim, stock.pages_of) for claim in claims if concerns(quota, claim, find_pod)
        )
        for limit in limits_of(quota):
            assumed_amount = amount_of(limit, assumed_amounts)
            used = amount_of(limit, held) - assumed_amount
            unit = limit.hard.format
            yield limit, Quantity.from_nano(used, unit), Quantity.from_nano(assumed_amount, unit)


def _assumed(unwritten: Iterable[ResourceClaim], stock: Stock) -> dict[str, list[ResourceClaim]]:
    """Return the claims of a stock whose allocation is not written yet, by namespace."""
    by_namespace: dict[str, list[ResourceClaim]] = {}
    for claim in unwritten:
        meta = claim.metadata
        current = stock.claims.get(meta.key)
        if current is not None and current.metadata.uid == meta.uid:
            by_namespace.setdefault(meta.namespace or "default", []).append(current)
    return by_namespace
