"""A small scheduler for a cluster that has none (`drawbridge standalone`): one pod at a time, devices first.

It waits for a pod's claims, asks all nodes at once, takes the first by name that serves them, writes what was granted, and binds. Equal nodes
are answered once, and after a write the node that changed: what many pods ask in a row is one question.
Each claim is written in two patches with the version that was read: the finalizer, then allocation, reservation and
timestamp together (a foreign allocation without a timestamp could never be bound by kube-scheduler). A kill between any
two writes leaves an allocation that the next start finds and uses. It does not replace kube-scheduler and is not part of the
in-cluster deployment.

A cluster in this process answers without ever giving way, so nothing here may count on an `await` to let the informers
run: between two pods, and between two nodes that take long, the loop is given a turn. A try that fails is repeated
after a pause (`allocator.service.standalone.retries`), never at once.
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
# The reason in the condition of a pod that has claims which are not made yet: nothing was decided about it.
WITHOUT_CLAIMS = "ClaimsMissing"
TURN = 0.005  # seconds of asking nodes after which the other tasks of the loop get a turn


class _WaitReason(Exception):  # noqa: N818  not an error: the pod has to wait
    """What a pod waits for, in words for its condition, and the reason that programs read there."""

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
        # Pods we bound, as they are since; the informer may learn of it only after the next pod was placed.
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
                # Wait until something changed, or until a pod's pause is over; then try every pending pod that is not to be left alone.
                pause_ends = self._retries.next_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(pause_ends if pause_ends < inf else None):
                        await self._changed.wait()
                self._changed.clear()
                waiting = podfit.pending(self._all_pods())
                self._retries.keep(pod.metadata.uid for pod in waiting)
                for pod in waiting:
                    # The versions of what a try to place it is based on.
                    made = [status.resource_claim_name for status in pod.status.resource_claim_statuses]
                    named = [entry.resource_claim_name for entry in pod.spec.resource_claims]
                    numbers = [pod.metadata.resource_version]
                    for name in (*made, *named):
                        claim = self._stock.claims.get(f"{pod.metadata.namespace}/{name}") if name else None
                        numbers.append(claim.metadata.resource_version if claim else "")
                    versions: Versions = tuple(numbers)
                    if self._retries.due(pod.metadata.uid, versions, clock()):
                        await self._place(pod, versions)
                        await asyncio.sleep(0)

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
                # News of our first write may follow our second.
                known = self._stock.claims.get(_stock_key(new))
                meta = new.metadata
                is_ours = known is not None and known.metadata.uid == meta.uid
                if known is None or not (is_ours and is_later(known.metadata.resource_version, meta.resource_version)):
                    self._stock = self._stock.with_object(new)
            elif new is not None:
                self._stock = self._stock.with_object(new)

    def _all_pods(self) -> list[Pod]:
        return [self._bound.get(pod.metadata.uid, pod) for pod in self._pods.objects.values()]

    async def _place(self, pod: Pod, versions: Versions) -> None:
        """Try one pod. Whatever comes of it concerns this pod alone; the others go on."""
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
                continue  # the controller says that none is needed
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
        """Find the first node that fits; what we learn meanwhile shows in the versions when we write."""
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
        answers: dict[str, Answer] = {}  # why not, once for each kind of the nodes that are short of devices
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
        self._stock = self._stock.with_object(
            written
        )  # the next pod must not be given the same device before we are told

    async def _report_waiting(self, pod: Pod, waiting: _WaitReason) -> None:
        """Say on the pod why it waits, once per reason."""
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


def _why(refusals: dict[str, str], answers: dict[str, Answer], short: int) -> str:
    """One message: what the nearest node lacks, then how many nodes have what against the pod."""
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
