"""A small scheduler for a cluster that has none (`drawbridge standalone`): one pod at a time, devices first.

For each pod: find the first node by name that serves its claims (`_choose`, with the bridge's `Decider`), write the claims (`_write`), and bind.
Each claim is written in two patches: the finalizer, then allocation, reservation and timestamp together. After a kill between two writes,
the next start finds the allocation and uses it. This scheduler does not replace kube-scheduler and is not part of the deployment.

A cluster in this process answers without yielding to the event loop, so an `await` need not let informers run: `sleep(0)` does, between
two pods. A failed attempt is repeated after a pause, each longer than the last: after a conflict our view of the cluster is outdated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator import pods as podfit
from allocator.decisions import Decider, Outlook, find_claims
from allocator.reservations import FINALIZER, effects
from allocator.service.commits import write
from allocator.service.knowledge import Knowledge
from cluster import resources
from cluster.errors import ApiError, NotFound
from cluster.patch import Merge
from dra.objects import ResourceClaimConsumerReference, is_later, is_reserved_for
from runtime.informers import Backoff

if TYPE_CHECKING:
    from allocator.decisions import Serving
    from cluster.protocol import Cluster
    from dra.objects import AllocationResult, Pod, ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
# The reason in the condition of a pod whose claims do not exist yet: no decision was made.
WITHOUT_CLAIMS = "ClaimsMissing"
UNSCHEDULABLE = "Unschedulable"
USUAL_FAILURES = 5  # consecutive API errors of a pod from which on they are warnings


class _Pause(NamedTuple):
    """The consecutive failures to place a pod, and when it is tried again."""

    failures: int = 0
    until: float = 0.0


class _WaitReason(Exception):  # noqa: N818  not an error: the pod has to wait
    """Why a pod has to wait: message and reason of its PodScheduled condition."""

    def __init__(self, message: str, reason: str = UNSCHEDULABLE) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


class Scheduler:
    """Places the pending pods of a cluster."""

    def __init__(self, cluster: Cluster, *, backoff: Backoff | None = None) -> None:
        self._cluster = cluster
        self._decider = Decider()
        self._changed = asyncio.Event()
        self._knowledge = Knowledge(cluster)
        self._knowledge.on_claim = self._see_claim
        self._knowledge.on_pod = self._see_pod
        self._knowledge.on_devices = self._changed.set
        self._backoff = backoff or Backoff(least=0.05, most=30.0)
        self._pauses: dict[str, _Pause] = {}  # by uid of pods whose last attempt failed
        self._reported: dict[str, str] = {}
        # Until the informer shows our writes: the versions of claims that we wrote, and pods that we bound, with their node; by uid.
        self._written: dict[str, str] = {}
        self._bound: dict[str, Pod] = {}

    async def run(self) -> None:
        """Place pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._knowledge.run())
            await self._knowledge.wait_for_sync()
            clock = asyncio.get_running_loop().time
            while True:
                # Wait for a change, or for the end of a pod's pause; then try every pending pod that has no pause.
                pause_ends = min((pause.until for pause in self._pauses.values()), default=inf)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(pause_ends if pause_ends < inf else None):
                        await self._changed.wait()
                self._changed.clear()
                waiting = podfit.pending(self._all_pods())
                uids = {pod.metadata.uid for pod in waiting}
                self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in uids}
                for pod in waiting:
                    if self._pauses.get(pod.metadata.uid, _Pause()).until <= clock():
                        await self._place(pod)
                        await asyncio.sleep(0)

    def _all_pods(self) -> list[Pod]:
        return [self._bound.get(pod.metadata.uid, pod) for pod in self._knowledge.pods.objects.values()]

    async def _place(self, pod: Pod) -> None:
        """Try to place one pod. A failure does not affect other pods."""
        earlier = self._pauses.pop(pod.metadata.uid, _Pause())
        try:
            try:
                await self._bind(pod)
            except _WaitReason as waiting:
                await self._report_waiting(pod, waiting)
        except Exception as error:
            failures = earlier.failures + 1
            seconds = self._backoff.seconds(failures, random.random(), error)  # noqa: S311  jitter
            self._pauses[pod.metadata.uid] = _Pause(failures, asyncio.get_running_loop().time() + seconds)
            note = {"pod": pod.metadata.name, "problem": str(error), "failures": failures}
            if isinstance(error, ApiError):
                level = logging.INFO if failures < USUAL_FAILURES else logging.WARNING
                logger.log(level, "a pod could not be placed", extra=note)
            elif failures == 1:
                logger.exception("a pod cannot be placed now", extra=note)

    async def _bind(self, pod: Pod) -> None:
        """Allocate the claims of a pod on the first node, by name, that can serve it, and bind the pod."""
        node, serving = self._choose(pod)
        meta = pod.metadata
        for claim, granted in zip(serving.open, serving.allocated_claims(), strict=True):
            await self._write(claim, granted.status.allocation, pod)
        for claim in serving.claims:
            if claim.status.allocation is not None and not is_reserved_for(claim, meta.uid):
                await self._write(claim, None, pod)
        await self._cluster.bind(meta.name, meta.namespace, node, uid=meta.uid)
        self._bound[meta.uid] = replace(pod, spec=replace(pod.spec, node_name=node))
        logger.info("pod placed", extra={"pod": meta.name, "node": node})

    def _choose(self, pod: Pod) -> tuple[str, Serving]:
        """Return a node, and what the pod gets there. If the cluster changes before the writes, these conflict."""
        stock = self._knowledge.stock
        used = podfit.total(self._all_pods())
        refusals: dict[str, str] = {}
        for name, node in stock.nodes.items():
            if refusal := podfit.refusal(pod, node, used.get(name, {})):
                refusals[name] = refusal
        # No controller creates claims for extended resources here, so device plugins have to serve these.
        by_plugin = find_claims(pod, stock).unmade is not None
        found = self._decider.outlook(pod, stock, crowded=refusals, by_plugin=by_plugin)
        nodes = list(found.nodes)
        message = found.message
        if found.outlook is Outlook.SKIP:
            nodes = [name for name in stock.nodes if name not in refusals]
            counts = Counter(refusals.values()).most_common()
            why = ", ".join(f"{number} {text}" for text, number in counts)
            message = f"0 of {len(refusals)} nodes: {why}" if refusals else "there are no nodes"
        if not nodes:
            raise _WaitReason(message, WITHOUT_CLAIMS if found.outlook is Outlook.WAITING else UNSCHEDULABLE)
        node_name = min(nodes)
        serving = self._decider.serve(pod, node_name, stock)
        if isinstance(serving, str):
            raise _WaitReason(serving)
        return node_name, serving

    async def _write(self, claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod) -> None:
        """Write an allocation, or only that a pod uses what was allocated before."""
        meta = pod.metadata
        consumer = ResourceClaimConsumerReference(resource="pods", name=meta.name, uid=meta.uid)
        consumers = (*claim.status.reserved_for, consumer)
        finalizers = claim.metadata.finalizers
        if allocation is None:
            effect: effects.ClaimWrite = effects.PatchReservedFor(claim, consumers)
        else:
            if FINALIZER not in finalizers:
                guard = effects.PatchFinalizer(claim, (*finalizers, FINALIZER))
                claim = await write(self._cluster, guard)
            effect = effects.PatchAllocation(claim, allocation, consumers)
        written = await write(self._cluster, effect)
        seen = self._knowledge.claims.objects.get((written.metadata.namespace, written.metadata.name))
        version = written.metadata.resource_version
        # The next pod must not get the same device before the informer shows the write.
        if seen is not None and is_later(version, seen.metadata.resource_version):
            self._written[written.metadata.uid] = version
            self._knowledge.overlay_claim(written.metadata.uid, written)

    async def _report_waiting(self, pod: Pod, waiting: _WaitReason) -> None:
        """Write the PodScheduled condition, once for each message."""
        meta = pod.metadata
        message = waiting.message
        if self._reported.get(meta.uid) == message:
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": waiting.reason,
            "message": message,
        }
        patch = Merge({"status": {"conditions": [condition]}})
        with suppress(NotFound):
            await self._cluster.patch(resources.PODS, meta.name, patch, meta.namespace, subresource="status")
        self._reported[meta.uid] = message

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        self._changed.set()
        if new is None and old is not None:
            self._reported.pop(old.metadata.uid, None)
            self._bound.pop(old.metadata.uid, None)
        elif new is not None and new.spec.node_name:
            self._bound.pop(new.metadata.uid, None)

    def _see_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Use the informer's version of a claim once it is not older than what we wrote."""
        self._changed.set()
        for claim in (old, new):
            uid = claim.metadata.uid if claim is not None else ""
            if uid not in self._written:
                continue
            shown = new.metadata.resource_version if new is not None and new.metadata.uid == uid else None
            if shown is None or not is_later(self._written[uid], shown):
                del self._written[uid]
                self._knowledge.overlay_claim(uid, None)
