"""A small scheduler for a cluster that has none (`drawbridge standalone`): one pod at a time, devices first.

For each pod, the scheduler finds the first node by name that can serve the pod's claims (`_choose`, with the allocator's `Decider`), writes
the claims (`_write`), and binds the pod. For a pod with extended resources of a DeviceClass, it first creates the claim, as the bridge does. Each claim is written in two patches: the finalizer, then allocation, reservation and timestamp
together. If the process is killed between two writes, the next start finds the allocation and uses it. This scheduler does not replace
kube-scheduler and is not part of the deployment.

After each write, the scheduler waits until its informer shows the write, so the next pod gets neither the same devices nor the same cpu. A
failed attempt is repeated after a pause, and each pause is longer than the last. After a conflict, for example, our view of the cluster is
outdated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from allocator import pods as podfit
from allocator.decisions import BY_DEFAULT, Decider, Outlook, find_claims
from allocator.reasons import by_text, summary
from allocator.reservations import FINALIZER, effects
from allocator.service.commits import write
from allocator.service.extended_claims import create_extended_claim
from allocator.service.knowledge import Knowledge
from allocator.service.questions import Basis, find_serving_nodes
from cluster import resources
from cluster.errors import ApiError, NotFound
from cluster.informers import Backoff
from cluster.patch import Merge
from dra.objects import ExtendedClaim, ResourceClaimConsumerReference, is_later, is_reserved_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.decisions import Serving
    from cluster.informers import Informer
    from cluster.protocol import Cluster
    from dra.objects import AllocationResult, ObjectMeta, Pod, ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
# The reason in the condition of a pod whose claims do not exist yet: no decision was made.
WITHOUT_CLAIMS = "ClaimsMissing"
UNSCHEDULABLE = "Unschedulable"
SEEN_SECONDS = 5.0  # an informer shows a write sooner, unless another writer has made the object unreadable
USUAL_FAILURES = 5  # from this number of consecutive API errors for a pod on, each is logged as a warning


class _Pause(NamedTuple):
    """The consecutive failures to place a pod, and when it is tried again."""

    failures: int = 0
    until: float = 0.0


class _WaitReason(NamedTuple):
    """Why a pod has to wait: message and reason of its PodScheduled condition."""

    message: str
    reason: str = UNSCHEDULABLE


class StandaloneScheduler:
    """Places the pending pods of a cluster."""

    def __init__(self, cluster: Cluster, *, backoff: Backoff | None = None) -> None:
        self._cluster = cluster
        self._decider = Decider()
        self._changed = asyncio.Event()
        self._knowledge = Knowledge(cluster)
        self._knowledge.on_claim = lambda *_: self._changed.set()
        self._knowledge.on_pod = lambda *_: self._changed.set()
        self._knowledge.on_devices = self._changed.set
        self._backoff = backoff or Backoff(least=0.05, most=30.0)
        self._pauses: dict[str, _Pause] = {}  # by uid of pods whose last attempt failed

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
                waiting = podfit.pending(self._knowledge.pods.objects.values())
                uids = {pod.metadata.uid for pod in waiting}
                self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in uids}
                for pod in waiting:
                    if self._pauses.get(pod.metadata.uid, _Pause()).until <= clock():
                        await self._place(pod)
                        await asyncio.sleep(0)

    async def _place(self, pod: Pod) -> None:
        """Try to place one pod. A failure does not affect other pods."""
        earlier = self._pauses.pop(pod.metadata.uid, _Pause())
        try:
            choice = self._choose(pod)
            if isinstance(choice, _WaitReason):
                await self._report_waiting(pod, choice)
            elif isinstance(choice, ExtendedClaim):
                await create_extended_claim(self._cluster, pod, choice)
                await self._until_seen(
                    self._knowledge.pods,
                    pod.metadata,
                    lambda seen: seen.status.extended_resource_claim_status is not None,
                )
            else:
                await self._bind(pod, *choice)
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

    async def _bind(self, pod: Pod, node: str, serving: Serving) -> None:
        """Write the claims of a pod with their allocations on a node, and bind the pod."""
        meta = pod.metadata
        allocations = {claim.metadata.key: claim.status.allocation for claim in serving.allocated}
        for claim in serving.claims:
            allocation = allocations.get(claim.metadata.key)
            if allocation is not None or not is_reserved_for(claim, meta.uid):
                await self._write(claim, allocation, pod)
        await self._cluster.bind(meta.name, meta.namespace, node, uid=meta.uid)
        await self._until_seen(self._knowledge.pods, meta, lambda seen: bool(seen.spec.node_name))
        logger.info("pod placed", extra={"pod": meta.name, "node": node})

    def _choose(self, pod: Pod) -> tuple[str, Serving] | ExtendedClaim | _WaitReason:
        """Return the first node, by name, that can serve a pod, and the allocations there; or why there is no such node.

        Return the claim for the pod's extended resources if this claim has to be created first.

        If the cluster changes before the writes, the writes conflict.
        """
        stock = self._knowledge.stock
        pod_claims = find_claims(pod, stock)
        used = podfit.total(self._knowledge.pods.objects.values())
        barriers_on = podfit.barriers_by_name(pod, pod_claims.by_claim)
        refusals = {
            name: str(barrier)
            for name, node in stock.nodes.items()
            if (barrier := next(barriers_on(node, used.get(name, {})), None))
        }
        answer = find_serving_nodes(pod, Basis(stock, BY_DEFAULT, refusals, {}, (), {}), self._decider)
        if answer.lacks_claim and pod_claims.uncreated is not None:
            return pod_claims.uncreated
        fleet_outlook = answer.fleet_outlook
        nodes = list(fleet_outlook.nodes)
        message = str(fleet_outlook.reason)
        if fleet_outlook.outlook is Outlook.SKIP:
            nodes = [name for name in stock.nodes if name not in refusals]
            message = str(summary(by_text(refusals), len(refusals), "the pod"))
        if not nodes:
            return _WaitReason(message, WITHOUT_CLAIMS if fleet_outlook.outlook is Outlook.WAITING else UNSCHEDULABLE)
        node_name = min(nodes)
        serving = self._decider.serve(pod, node_name, stock)
        return _WaitReason(serving) if isinstance(serving, str) else (node_name, serving)

    async def _write(self, claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod) -> None:
        """Add a pod to the reservedFor of a claim. Also write `allocation`, unless it is None because the claim already has one."""
        meta = pod.metadata
        consumer = ResourceClaimConsumerReference(resource="pods", name=meta.name, uid=meta.uid)
        consumers = (*claim.status.reserved_for, consumer)
        finalizers = claim.metadata.finalizers
        if allocation is None:
            effect: effects.ClaimWrite = effects.PatchReservedFor(claim, consumers)
        else:
            if FINALIZER not in finalizers:
                finalizer_patch = effects.PatchFinalizer(claim, (*finalizers, FINALIZER))
                claim = await write(self._cluster, finalizer_patch)
            effect = effects.PatchAllocation(claim, allocation, consumers)
        written = await write(self._cluster, effect)
        version = written.metadata.resource_version
        await self._until_seen(
            self._knowledge.claims,
            written.metadata,
            lambda seen: not is_later(version, seen.metadata.resource_version),
        )

    async def _report_waiting(self, pod: Pod, waiting: _WaitReason) -> None:
        """Write the PodScheduled condition, once for each message."""
        meta = pod.metadata
        if any(known.type == "PodScheduled" and known.message == waiting.message for known in pod.status.conditions):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": waiting.reason,
            "message": waiting.message,
        }
        patch = Merge({"status": {"conditions": [condition]}})
        with suppress(NotFound):
            await self._cluster.patch(resources.PODS, meta.name, patch, meta.namespace, subresource="status")

    async def _until_seen(self, informer: Informer[Any], meta: ObjectMeta, is_new: Callable[[Any], bool]) -> None:
        """Wait until an informer shows our write to an object, or no longer shows the object."""
        key = meta.namespace, meta.name
        async with asyncio.timeout(SEEN_SECONDS):
            while (seen := informer.objects.get(key)) and seen.metadata.uid == meta.uid and not is_new(seen):
                self._changed.clear()
                await self._changed.wait()
        self._changed.set()
