"""Claims with a name of their own that a kubelet may still have prepared, although the pod that used the claim is gone.

The kubelet prepares a claim once for each uid, so a pod that gets other devices on that node by the same claim would run with the former
devices. A deletion is known by the pod's end, and by the reports of the node's audit agent. The Lease records it, for the next process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

import msgspec

from allocator.service.part import Part
from cluster.errors import ApiError
from cluster.patch import Merge
from cluster.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.service.live_ledger import LiveLedger
    from allocator.service.part import Shared
    from cluster.controllers import Election
    from dra.objects import Pod

RECORD = "drawbridge.dev/prepared-claims"  # the annotation of the Lease
MAX_RECORDED = 500  # entries: an object's annotations have at most 256 KiB
# How long a kubelet needs, beyond the grace period of a pod that was deleted by force, to end the pod and to unprepare its claims.
UNPREPARE_SECONDS = 60.0
REPORT_SECONDS = 120.0  # how long a report of an agent counts; agents report twice a minute


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim that a node's kubelet may have prepared until the time `until`, in seconds since 1970."""

    uid: str
    node: str
    message: str
    until: float
    by_agent: bool = False  # whether the node's audit agent has reported it


class PreparedClaims(Part):
    def __init__(self, shared: Shared, ledger: LiveLedger, election: Election) -> None:
        super().__init__(shared)
        self._ledger = ledger
        self._election = election
        self.entries: dict[tuple[str, str], PreparedClaim] = {}  # by uid and node
        self._recorded = ""  # the annotation

    def see_end(self, pod: Pod) -> None:
        """Note the claims that a pod leaves on its node, if the pod was deleted before it ended."""
        node = pod.spec.node_name
        if not node or pod.has_ended:
            return
        until = time() + pod.spec.termination_grace_period_seconds + UNPREPARE_SECONDS
        for entry in pod.spec.resource_claims:
            claim = self._knowledge.claims.objects.get((pod.metadata.namespace, entry.resource_claim_name or ""))
            if claim is not None:
                message = f"node(s) may still have claim {claim.metadata.key} prepared for pod {pod.metadata.key}, which was deleted before it ended"
                self._put(PreparedClaim(claim.metadata.uid, node, message, until))

    def see_report(self, node: str, uids: Collection[str]) -> None:
        """Note the unallocated claims that the kubelet of a node has prepared, as its audit agent reports."""
        for entry in tuple(self.entries.values()):
            if entry.by_agent and entry.node == node and entry.uid not in uids:
                self.let_go(entry)
        until = time() + REPORT_SECONDS
        for uid in uids:
            hold, known = self._ledger.state.holds.get(uid), self.entries.get((uid, node))
            if hold is not None and hold.claim.status.allocation is None and (known is None or known.until < until):
                message = f"node(s) still have claim {hold.claim.metadata.key} prepared for a pod that is gone"
                self._put(PreparedClaim(uid, node, message, until, by_agent=True))

    def _put(self, entry: PreparedClaim) -> None:
        self.entries[entry.uid, entry.node] = entry
        asyncio.get_running_loop().call_later(entry.until - time(), self.let_go, entry)

    def let_go(self, entry: PreparedClaim) -> None:
        """Allow a claim on its former node again, unless it has a later entry. Requeue the pods that waited for this."""
        if self.entries.get((entry.uid, entry.node)) is entry:
            del self.entries[entry.uid, entry.node]
            self._pods.devices_changed()  # a pod may wait because other plugins refuse the other nodes

    def excluded_nodes(self, uids: Collection[str]) -> dict[str, str]:
        """Return a message for each node that may have one of these claims prepared."""
        return {entry.node: entry.message for entry in self.entries.values() if entry.uid in uids}

    def recall(self) -> None:
        """Read the record of an earlier leader."""
        lease = self._election.lease
        self._recorded = lease.metadata.annotations.get(RECORD, "") if lease is not None else ""
        with suppress(msgspec.MsgspecError):  # there is no record, or it was changed by hand
            for entry in msgspec.json.decode(self._recorded, type=list[PreparedClaim]):
                if (entry.uid, entry.node) not in self.entries:
                    self._put(entry)

    async def keep(self) -> None:
        """Write the record if it has changed. If the API server rejects the write, the next call tries again."""
        lease, entries = self._election.lease, list(self.entries.values())[-MAX_RECORDED:]
        record = msgspec.json.encode(entries).decode() if entries else ""
        if lease is not None and record != self._recorded and self._lead.may_write():
            patch = Merge({"metadata": {"annotations": {RECORD: record or None}}})
            with suppress(ApiError):
                await self._cluster.patch(LEASES, lease.metadata.name, patch, lease.metadata.namespace)
                self._recorded = record
