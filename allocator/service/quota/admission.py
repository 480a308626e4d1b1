"""Quotas at creation: the leading replica admits pods and claims, or returns the quota line that they would exceed.

The first evaluation of a new claim spec checks all devices, which takes a third of a second on 5,000 nodes. The evaluation runs in turns of
a few milliseconds (`in_turns`), and the event loop answers other calls in between. When a review has taken `PATIENCE` seconds, the rest is
not evaluated: the remaining requests count with the amounts in the claim itself.

Admitted objects without devices are counted from the stored objects, so every replica knows them (`allocator.quota.PendingUsage`). Only
the leader knows the objects that it just admitted and that are not stored yet. A dry run uses the same counts and adds nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec.structs import replace

from allocator.quota import PendingUsage, QuotaQuestion, core_lines, future_extended_claims
from allocator.service.app import HttpError
from cluster.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_QUOTAS
from dra import step_limits
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.objects import asks_for_devices
from dra.policy import Demands, held_of_quota

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.quota import FutureClaim, NewObject
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.metrics import Metrics
    from allocator.service.quota.quotas import Quotas
    from dra.objects import Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts
    from runtime.informers import Batch

PATIENCE = 1.5  # seconds for a review; the API server waits for three
_Item = TypeVar("_Item")


T = TypeVar("T")


class _Turns(Generic[_Item]):
    """Items that wait. One address with many items delays another address by one item."""

    def __init__(self) -> None:
        # The items of known and of unknown addresses, by address, in the order of the addresses' turns.
        self._waiting: dict[bool, dict[str, deque[_Item]]] = {True: {}, False: {}}
        self._is_known_next = True

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def add(self, item: _Item, peer: str, *, is_known: bool) -> None:
        self._waiting[is_known].setdefault(peer, deque()).append(item)

    def pop(self) -> _Item | None:
        """Remove and return the next item; None if there is none."""
        is_known = self._is_known_next if self._waiting[self._is_known_next] else not self._is_known_next
        self._is_known_next = not is_known
        peers = self._waiting[is_known]
        if not peers:
            return None
        peer = next(iter(peers))
        items = peers.pop(peer)
        item = items.popleft()
        if items:
            peers[peer] = items
        return item


class LoopTurns:
    """Shares the event loop between long reviews. Namespaces take turns, so many reviews of one namespace do not delay other namespaces."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting = _Turns[asyncio.Future[None]]()
        self._is_scheduled = False

    async def wait(self, namespace: str) -> None:
        """Wait for the next turn of a namespace."""
        future = self._loop.create_future()
        self._waiting.add(future, namespace, is_known=True)
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._is_scheduled and self._waiting:
            self._is_scheduled = True
            self._loop.call_soon(self._give)

    def _give(self) -> None:
        """Give the turn to the next task that is not cancelled."""
        self._is_scheduled = False
        while (future := self._waiting.pop()) is not None:
            if not future.done():
                future.set_result(None)
                break
        self._schedule()


class Unfinished(Exception):  # noqa: N818 - not an error
    """A review of this namespace did not finish within one turn. The next call continues where this one stopped."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.namespace = namespace


class QuotaAdmission:
    """Admits pods and claims, or refuses them because of a quota."""

    def __init__(
        self,
        *,
        knowledge: Knowledge,
        lead: Lead,
        quotas: Quotas,
        metrics: Metrics,
        future_claims_of_pod: Callable[[Pod], Mapping[str, FutureClaim]],
    ) -> None:
        """`future_claims_of_pod` returns the claims that will be created for a pod, by name."""
        self._knowledge = knowledge
        self._lead = lead
        self._quotas = quotas
        self._metrics = metrics
        self._future_claims_of_pod = future_claims_of_pod
        self._clock = asyncio.get_running_loop().time
        self._demands = Demands()
        self._turns = LoopTurns()
        self.steps, self.patience = step_limits.QUOTA_PIECE, PATIENCE
        self.pending = PendingUsage()
        self._templates = knowledge.informer(RESOURCE_CLAIM_TEMPLATES)
        self._core = knowledge.informer(RESOURCE_QUOTAS)
        knowledge.pods.listen(self._take_pods)
        knowledge.claims.listen(self._take_claims)

    async def run(self) -> None:
        """Follow ResourceClaimTemplates and ResourceQuotas until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._templates.run())
            group.create_task(self._core.run())

    def admit(self, new: NewObject) -> str:
        """Admit an object and count it, and return "". If it is not admitted, return the reason.

        Raise HttpError if this replica cannot answer now, and Unfinished if the evaluation takes more than one turn.
        """
        try:
            return self._ask(
                new, partial(self._demands.most_held, budget=Budget(self.steps, max_call_steps=self.steps))
            )
        except OutOfBudget:
            raise Unfinished(new.namespace) from None

    async def in_turns(self, namespace: str, ask: Callable[[Callable[[NewObject], str]], T]) -> T:
        """Call `ask` once per turn until it finishes. After `patience` seconds, call it with a cheap estimate instead of the evaluation."""
        until = self._clock() + self.patience
        while self._clock() < until:
            await self._turns.wait(namespace)
            try:
                return ask(self.admit)
            except Unfinished:
                continue
        return ask(partial(self._ask, demand_in=self._demands.at_hand))

    def _ask(self, new: NewObject, demand_in: Callable[..., Amounts]) -> str:
        """Check an object against quotas, and count it if it is admitted. Return why it is refused; "" if it is admitted.

        `demand_in` returns the largest amounts that a claim with a given spec may hold in a stock.
        """
        self._lead.require_ready()
        self._lead.require_lead()
        if not self._templates.is_synced:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "templates are not read yet", "retry in a moment")
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
            except_uid=new.uid,
            excludes_uncreated=new.entry is not None,
        )
        question = QuotaQuestion(knowledge.quotas.objects.values(), used_by_claims, waiting, demand, self._spec)
        requested = question.requested_by(new)
        lines = question.lines_for(new, requested)
        exceeded = [str(line) for line in lines if line.exceeded]
        self._metrics.reviews.labels("refused" if exceeded else "admitted").inc()
        if lines and not exceeded and not new.dry_run:
            self.pending.admit(new, self._clock())
        if exceeded:
            exceeded.append(core_lines(self._core.objects.values(), new.namespace, requested, stock.classes))
        return "; ".join(filter(None, exceeded))

    def _spec(self, namespace: str, name: str) -> ResourceClaimSpec | None:
        template = self._templates.objects.get((namespace, name))
        return template.spec.spec if template is not None else None

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
