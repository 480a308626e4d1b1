"""A small scheduler for a cluster that has none (`drawbridge standalone`): one pod at a time, devices first.

For each pod: wait for its claims (`_bind`), find the first node by name that serves them (`_choose`), write the claims (`_write`), and bind.
Each claim is written in two patches: the finalizer, then allocation, reservation and timestamp together. After a kill between two writes,
the next start finds the allocation and uses it. This scheduler does not replace kube-scheduler and is not part of the deployment.

A cluster in this process answers without yielding to the event loop, so an `await` need not let informers run: `sleep(0)` does, between
two pods and between slow nodes. A failed attempt is repeated after a pause (`allocator.service.standalone.retries`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, defaultdict
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from allocator import FleetMemo, allocate, fleet
from allocator import pods as podfit
from allocator.answer import Answer, Verdict
from allocator.reasons import distance, sentence
from allocator.reservations import FINALIZER, effects
from allocator.service.commits import write
from allocator.service.standalone.retries import Retries
from cluster import resources
from cluster.errors import ApiError, NotFound
from cluster.patch import Merge
from dra.objects import ResourceClaim, ResourceClaimConsumerReference, claim_name, is_later, is_reserved_for
from dra.stock import Stock
from runtime.informers import Informer

if TYPE_CHECKING:
    from allocator.service.standalone.retries import Versions
    from cluster.protocol import Cluster
    from dra.objects import AllocationResult, Node, Pod
    from runtime.informers import Batch

logger = logging.getLogger("drawbridge.allocator")
STOCKED = (
    resources.NODES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_CLASSES,
    resources.DEVICE_TAINT_RULES,
    resources.DEVICE_COMPATIBILITIES,
    resources.RESOURCE_CLAIMS,
)
# The reason in the condition of a pod whose claims do not exist yet: no decision was made.
WITHOUT_CLAIMS = "ClaimsMissing"
TURN = 0.005  # seconds after which `_choose` yields to the event loop


class _WaitReason(Exception):  # noqa: N818  not an error: the pod has to wait
    """Why a pod has to wait: message and reason of its PodScheduled condition."""

    def __init__(self, message: str, reason: str = "Unschedulable") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


class Scheduler:
    """Places the pending pods of a cluster."""

    def __init__(self, cluster: Cluster, *, retries: Retries | None = None) -> None:
        self._cluster = cluster
        self._stock = Stock.of()
        self._memo = FleetMemo()
        self._pods = Informer(cluster, resources.PODS)
        self._informers: list[Informer[Any]] = []
        for kind in STOCKED:
            informer: Informer[Any] = Informer(cluster, kind)
            self._informers.append(informer)
        self._changed = asyncio.Event()
        self._retries = retries or Retries()
        self._reported: dict[str, str] = {}
        # By uid: pods that we bound, with their node, until the informer shows the binding.
        self._bound: dict[str, Pod] = {}

    async def run(self) -> None:
        """Place pods until cancelled."""
        for informer in self._informers:
            informer.listen(self._take)
        self._pods.listen(self._notice)
        async with asyncio.TaskGroup() as group:
            for run in (self._pods.run, *(informer.run for informer in self._informers)):
                group.create_task(run())
            for informer in (self._pods, *self._informers):
                await informer.wait_for_sync(inf)
            clock = asyncio.get_running_loop().time
            while True:
                # Wait for a change, or for the end of a pod's pause; then try every pending pod that has no pause.
                pause_ends = self._retries.next_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(pause_ends if pause_ends < inf else None):
                        await self._changed.wait()
                self._changed.clear()
                waiting = podfit.pending(self._all_pods())
                self._retries.keep(pod.metadata.uid for pod in waiting)
                for pod in waiting:
                    versions = self._versions(pod)
                    if self._retries.due(pod.metadata.uid, versions, clock()):
                        await self._place(pod, versions)
                        await asyncio.sleep(0)

    def _versions(self, pod: Pod) -> Versions:
        """Return the versions of a pod and its claims, on which an attempt to place the pod is based."""
        made = [status.resource_claim_name for status in pod.status.resource_claim_statuses]
        named = [entry.resource_claim_name for entry in pod.spec.resource_claims]
        versions = [pod.metadata.resource_version]
        for name in (*made, *named):
            claim = self._stock.claims.get(f"{pod.metadata.namespace}/{name}") if name else None
            versions.append(claim.metadata.resource_version if claim else "")
        return tuple(versions)

    def _all_pods(self) -> list[Pod]:
        return [self._bound.get(pod.metadata.uid, pod) for pod in self._pods.objects.values()]

    async def _place(self, pod: Pod, versions: Versions) -> None:
        """Try to place one pod. A failure does not affect other pods."""
        uid = pod.metadata.uid
        now = asyncio.get_running_loop().time()
        try:
            try:
                await self._bind(pod)
            except _WaitReason as waiting:
                await self._report_waiting(pod, waiting)
        except Exception as error:
            failure = self._retries.note_failure(uid, versions, error, now=now, fraction=random.random())  # noqa: S311  jitter
            note = {"pod": pod.metadata.name, "problem": str(error), "failures": failure.times}
            if isinstance(error, ApiError):
                level = logging.WARNING if failure.needs_news else logging.INFO
                logger.log(level, "a pod could not be placed", extra=note)
            elif failure.times == 1:
                logger.exception("a pod cannot be placed now", extra=note)
        else:
            self._retries.forget(uid)

    async def _bind(self, pod: Pod) -> None:
        claims: list[ResourceClaim] = []
        wanted: list[ResourceClaim] = []
        shared: list[ResourceClaim] = []
        meta = pod.metadata
        for entry in pod.spec.resource_claims:
            name = claim_name(pod, entry)
            if name is None:
                continue  # its template requests no claim
            claim = self._stock.claims.get(f"{meta.namespace}/{name}")
            if claim is None or claim.metadata.deletion_timestamp:
                raise _WaitReason(f"waiting for claim {entry.name} to be created", WITHOUT_CLAIMS)
            claims.append(claim)
            if claim.status.allocation is None:
                wanted.append(claim)
            elif not is_reserved_for(claim, meta.uid):
                shared.append(claim)
        node, answer = await self._choose(pod, claims, wanted)
        grants = zip(wanted, answer.allocations, strict=True)
        for claim, granted in grants:
            await self._write(claim, granted.allocation, pod)
        for claim in shared:
            await self._write(claim, None, pod)
        where = node.metadata.name
        await self._cluster.bind(meta.name, meta.namespace, where, uid=meta.uid)
        spec = replace(pod.spec, node_name=where)
        self._bound[meta.uid] = replace(pod, spec=spec)
        logger.info("pod placed", extra={"pod": meta.name, "node": where})

    async def _choose(self, pod: Pod, claims: list[ResourceClaim], wanted: list[ResourceClaim]) -> tuple[Node, Answer]:
        """Return the first node that fits. If the cluster changes meanwhile, the write conflicts."""
        stock = self._stock
        found = fleet(stock, wanted, memo=self._memo)
        pods = self._all_pods()
        total = podfit.total(pods)
        used: defaultdict[str, dict[str, int]] = defaultdict(dict, total)
        refusals: dict[str, str] = {}
        short: set[str] = set()  # nodes that lack devices and nothing else
        nodes = sorted(stock.nodes.items())
        for name, node in nodes:
            in_use = used[name]
            refusal = podfit.refusal(pod, node, in_use) or podfit.claim_obstacle(claims, node)
            if refusal:
                refusals[name] = refusal
                continue
            if found.verdict(name) is Verdict.FEASIBLE:
                return node, found[name]
            short.add(name)
        answers: dict[str, Answer] = {}  # one answer for each kind of nodes that lack devices
        kinds = found.equal_nodes()
        clock = asyncio.get_running_loop().time
        turn = clock()
        firsts = (min(short.intersection(kind), default="") for kind in kinds)
        for name in sorted(filter(None, firsts)):
            if clock() - turn > TURN:
                await asyncio.sleep(0)
                turn = clock()
            answers[name] = allocate(stock, name, wanted, reasons=True)
        raise _WaitReason(_why(refusals, answers, len(short)))

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
        # The next pod must not get the same device before the informer shows the write.
        self._stock = self._stock.with_object(written)

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

    def _notice(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            self._changed.set()
            pod = delta.new or delta.old
            if pod is None:
                continue
            uid = pod.metadata.uid
            is_deleted = delta.new is None
            if is_deleted:
                self._reported.pop(uid, None)
            if is_deleted or pod.spec.node_name:
                self._bound.pop(uid, None)

    def _take(self, batch: Batch[Any]) -> None:
        for delta in batch.deltas:
            self._changed.set()
            new = delta.new
            old = delta.old
            if new is None and old is not None:
                kind = type(old).__name__
                self._stock = self._stock.without(kind, _stock_key(old))
            elif isinstance(new, ResourceClaim):
                # The informer may show our first write after we made the second.
                known = self._stock.claims.get(_stock_key(new))
                meta = new.metadata
                is_ours = known is not None and known.metadata.uid == meta.uid
                if known is None or not (is_ours and is_later(known.metadata.resource_version, meta.resource_version)):
                    self._stock = self._stock.with_object(new)
            elif new is not None:
                self._stock = self._stock.with_object(new)


def _why(refusals: dict[str, str], answers: dict[str, Answer], short: int) -> str:
    """Return one message: what the nearest node lacks, then the other reasons with their numbers of nodes."""
    if not refusals and not answers:
        return "there are no nodes"
    counts = Counter(refusals.values())
    others = ", ".join(f"{number} {text}" for text, number in counts.most_common())
    if not answers:
        return f"0 of {len(refusals)} nodes: {others}"

    def distance_of(node: str) -> tuple[bool, tuple[int, ...]]:
        answer = answers[node]
        return not answer.reasons, distance(answer)

    nearest = min(answers, key=distance_of)
    total = len(refusals) + short
    message = f"nearest of {total} nodes is {nearest}: {sentence(answers[nearest])}"
    return f"{message}; {others}" if others else message


def _stock_key(obj: Any) -> str:
    key: str = obj.metadata.key if isinstance(obj, ResourceClaim) else obj.metadata.name
    return key
