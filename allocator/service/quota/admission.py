"""Quotas at creation: the leading replica admits pods and claims, or says which line they would cross.

The first look for a new question goes over all devices, a third of a second on 5,000 nodes. It has a few milliseconds of a turn of the loop, and goes on
in later ones (`in_turns`), so other calls are answered between; an object that has waited for its end for too long is counted by what the
claim itself says.

What was admitted and has no devices yet is counted by every replica from what it sees stored (`allocator.quota.PendingUsage`); only what was
admitted a moment ago, and is not stored yet, is known to the leader alone. A dry run is answered from the same counts, and adds nothing to them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from allocator.quota import PendingUsage, QuotaQuestion, core_lines, future_extended_claims
from allocator.service.app import HttpError
from cluster.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_QUOTAS
from dra import step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import asks_for_devices
from dra.policy import Demands, held_of_quota
from runtime.informers import Informer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.quota import FutureClaim, NewObject
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.metrics import Metrics
    from allocator.service.quota.quotas import Quotas
    from cluster.protocol import Cluster
    from dra.objects import Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts
    from runtime.informers import Batch

PATIENCE = 1.5  # seconds for a review; the API server waits for three
T = TypeVar("T")


class Turns:
    """Turns of the event loop for work that is too long for one turn: namespaces take turns, so many calls of one do not hold up another."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # the next namespace is first
        self._called = False

    async def wait(self, namespace: str) -> None:
        """Wait for the next turn of a namespace."""
        future = self._loop.create_future()
        self._lines.setdefault(namespace, deque()).append(future)
        self._call()
        await future

    def _call(self) -> None:
        if not self._called and self._lines:
            self._called = True
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        """Give the turn to the next namespace with a waiting task; a task that was cancelled meanwhile takes no turn."""
        self._called = False
        while self._lines:
            namespace = next(iter(self._lines))
            line = self._lines.pop(namespace)
            future = line.popleft()
            if line:
                self._lines[namespace] = line
            if not future.done():
                future.set_result(None)
                break
        self._call()


class Unfinished(Exception):  # noqa: N818 - not an error
    """There is more to look at for an object of this namespace than one turn of the loop holds. The next one goes on from there."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.namespace = namespace


class QuotaAdmission:
    """Admits pods and claims."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        knowledge: Knowledge,
        lead: Lead,
        quotas: Quotas,
        metrics: Metrics,
        future_claims_of_pod: Callable[[Pod], Mapping[str, FutureClaim]],
    ) -> None:
        """`future_claims_of_pod` says which claims will be made for a pod."""
        self._knowledge = knowledge
        self._lead = lead
        self._quotas = quotas
        self._metrics = metrics
        self._future_claims_of_pod = future_claims_of_pod
        self._clock = asyncio.get_running_loop().time
        self._demands = Demands()
        self._turns = Turns()
        self.steps, self.patience = step_limits.QUOTA_PIECE, PATIENCE
        self.pending = PendingUsage()
        self._templates = Informer(
            cluster, RESOURCE_CLAIM_TEMPLATES, quarantine=knowledge.quarantine, clock=self._clock
        )
        self._core = Informer(cluster, RESOURCE_QUOTAS, quarantine=knowledge.quarantine, clock=self._clock)
        knowledge.pods.listen(self._take_pods)
        knowledge.claims.listen(self._take_claims)

    async def run(self) -> None:
        """Follow templates, and core's quotas, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._templates.run())
            group.create_task(self._core.run())

    def admit(self, new: NewObject) -> str:
        """Admit an object, and remember it, or say why not.

        Raise HttpError where that cannot be said now, and Unfinished where there is more to look at than one turn holds.
        """
        try:
            return self._ask(new, partial(self._demands.most_held, budget=Budget(self.steps, longest=self.steps)))
        except OutOfBudget:
            raise Unfinished(new.namespace) from None

    async def in_turns(self, namespace: str, ask: Callable[[Callable[[NewObject], str]], T]) -> T:
        """Ask turn by turn until there is an answer; when the time is over, by what is known without another look."""
        until = self._clock() + self.patience
        while self._clock() < until:
            await self._turns.wait(namespace)
            try:
                return ask(self.admit)
            except Unfinished:
                continue
        return ask(partial(self._ask, demand_in=self._demands.at_hand))

    def _ask(self, new: NewObject, demand_in: Callable[..., Amounts]) -> str:
        """`demand_in` says the most that a claim with a spec may hold in a stock."""
        self._lead.demand_ready()
        self._lead.demand_lead()
        if not self._templates.health.synced:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "templates are not read yet", "ask again in a moment")
        if unknown := self._quotas.unknown(new.namespace):
            self._metrics.reviews.labels("refused").inc()
            return unknown
        knowledge = self._knowledge
        stock = knowledge.stock
        if new.pod is not None:
            new = replace(new, claims={**new.claims, **future_extended_claims(new.pod, stock)})
        if new.entry is not None:
            pod = knowledge.pod(new.namespace, new.entry.pod)
            if pod is not None and pod.metadata.uid == new.entry.uid:
                new = replace(new, priority_class=pod.spec.priority_class_name)
        self.pending.expire(self._clock())
        demand = partial(demand_in, stock=stock)
        used_by_claims = partial(held_of_quota, stock=stock, find_pod=knowledge.pod)
        waiting = partial(
            self.pending.waiting,
            stock=stock,
            demand=demand,
            find_pod=knowledge.pod,
            find_spec=self._spec,
            but=new.uid,
            claims_only=new.entry is not None,
        )
        question = QuotaQuestion(knowledge.quotas.objects.values(), used_by_claims, waiting, demand, self._spec)
        requested = question.asked_by(new)
        lines = question.lines_for(new, requested)
        crossed = [str(line) for line in lines if line.exceeded]
        self._metrics.reviews.labels("refused" if crossed else "admitted").inc()
        if lines and not crossed and not new.dry_run:
            self.pending.admit(new, self._clock())
        if crossed:
            crossed.append(core_lines(self._core.objects.values(), new.namespace, requested, stock.classes))
        return "; ".join(filter(None, crossed))

    def _spec(self, namespace: str, name: str) -> ResourceClaimSpec | None:
        found = self._templates.objects.get((namespace, name))
        return found.spec.spec if found is not None else None

    def _take_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            old, new = delta.old, delta.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self.pending.lose_pod(old)
            if new is not None and asks_for_devices(new):
                future_claims = {
                    **self._future_claims_of_pod(new),
                    **future_extended_claims(new, self._knowledge.stock),
                }
                self.pending.see_pod(new, future_claims)

    def _take_claims(self, batch: Batch[ResourceClaim]) -> None:
        for delta in batch.deltas:
            old, new = delta.old, delta.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self.pending.lose_claim(old)
            if new is not None:
                self.pending.see_claim(new)
