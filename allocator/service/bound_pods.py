"""Bound pods that lack devices, because no scheduler looks at a bound pod.

If the pod's status names a claim without devices, the kubelet waits for the claim, and the allocator can give it devices of the node. If the
pod has no claim for an extended resource of a DeviceClass, the pod runs without devices, and can only be recreated.

kube-controller-manager may create two claims for one entry of a pod if it gets no answer to the first create, and may change which of them
the pod's status names after the pod was bound. The former claim keeps its devices until the pod ends, because containers may use them.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from allocator.reports import unserved_resources
from allocator.service.app import HttpError
from allocator.service.part import Part
from dra.objects import claim_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from allocator.service.allocator import Allocator
    from allocator.service.live_ledger import LiveLedger
    from allocator.service.part import Shared
    from dra.objects import Pod

logger = logging.getLogger("drawbridge.allocator")
DELAY = 10.0  # seconds after a change of a bound pod until its claims are checked, because the copies of pods and claims may lag
PAUSE = 60.0  # seconds between two attempts for one pod


class BoundPods(Part):
    """Gives bound pods the devices of their node that their claims request, or writes an event about the pod."""

    def __init__(self, shared: Shared, allocator: Allocator, ledger: LiveLedger) -> None:
        super().__init__(shared)
        self._allocator = allocator
        self._ledger = ledger
        self._clock = asyncio.get_running_loop().time
        self._due: dict[str, float] = {}  # by uid of a bound pod: when to check its claims
        self._unserved: dict[str, str] = {}  # by uid, the pods that run without devices, as namespace/name

    def see(self, old: Pod | None, new: Pod | None) -> None:
        """Record a change of a pod."""
        if new is not None and new.spec.node_name and self._pods.find(new.metadata.uid) is not None:
            self._due.setdefault(new.metadata.uid, self._clock() + DELAY)
        if old is not None and self._pods.find(old.metadata.uid) is None:
            self._due.pop(old.metadata.uid, None)
            self._unserved.pop(old.metadata.uid, None)

    @property
    def without_devices(self) -> Collection[str]:
        """The bound pods that can only be recreated, as namespace/name."""
        return self._unserved.values()

    async def serve(self) -> None:
        """Serve the bound pods that lack devices."""
        now = self._clock()
        for uid in [uid for uid, due in self._due.items() if due <= now]:
            pod = self._pods.find(uid)
            unallocated = [] if pod is None or pod.is_done else self._unallocated_claims(pod)
            lacking = [] if pod is None else unserved_resources(pod, self._knowledge.stock)
            if not lacking:
                self._unserved.pop(uid, None)
            if pod is None or not (unallocated or lacking):
                self._due.pop(uid, None)
                continue
            self._due[uid] = now + PAUSE
            if lacking:
                await self._report(pod, lacking)
            if not unallocated:
                continue
            try:
                await self._allocator.serve_bound(pod)
            except HttpError as error:
                if error.status != HTTPStatus.CONFLICT or self._pods.find(uid) is None:
                    continue
                sentence = (
                    f"claim {', '.join(unallocated)}, which the pod's status names, has no devices, and node {pod.spec.node_name} "
                    f"cannot give it any: {error}; the allocator tries again in a minute, or delete the pod"
                )
                logger.warning("a bound pod has no devices", extra={"pod": pod.metadata.key, "problem": str(error)})
                await self._ledger.record_event(pod, sentence)

    async def _report(self, pod: Pod, lacking: Sequence[str]) -> None:
        names = ", ".join(lacking)
        self._unserved[pod.metadata.uid] = pod.metadata.key
        logger.warning("a bound pod has no devices", extra={"pod": pod.metadata.key, "problem": names})
        sentence = f"the pod is on node {pod.spec.node_name} without a claim for {names}, and no device plugin of the node offers it"
        await self._ledger.record_event(pod, f"{sentence}: recreate the pod")

    def _unallocated_claims(self, pod: Pod) -> list[str]:
        claims = self._knowledge.stock.claims
        return [key for key in claim_keys(pod) if key in claims and claims[key].status.allocation is None]
