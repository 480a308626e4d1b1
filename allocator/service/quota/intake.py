"""The door under quotas: who is let in, by who leads. A replica that follows hands the question on to the one that leads.

The first look for a new question goes over all devices, a third of a second on 5,000 nodes. It has a few milliseconds of a turn of the loop, and goes on
in later ones (`in_turns`), so nobody else is held up; who has waited for its end for too long is counted by what the claim itself says.

What was let in and has no devices yet is in a book that every replica keeps from what it sees stored; only who was let in a moment ago,
and is not stored yet, is known to the leader alone. A dry run is answered by the same book, and leaves nothing in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from allocator.intake import Book, Indoors, beside_core
from allocator.service.replies import Refusal
from cluster.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_QUOTAS
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.policy import Demands, held_of_quota
from runtime.informers import Informer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.intake import Newcomer, Wanted
    from allocator.service.bridge import Bridge
    from allocator.service.metrics import Metrics
    from cluster.protocol import Cluster
    from dra.objects import Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts
    from runtime.informers import Batch

    WantsOfPod = Callable[[Pod], Mapping[str, Wanted]]
    DemandIn = Callable[..., Amounts]  # of a spec in a stock

STEPS = 8_000  # of looking at devices in one turn, about a microsecond each
PATIENCE = 1.5  # seconds for a review; the API server waits for three
T = TypeVar("T")
_Line: TypeAlias = "deque[asyncio.Future[None]]"


class Turns:
    """Turns of the event loop for work that is too long for one turn: namespaces take turns, so a crowd in one does not hold up another."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, _Line] = {}  # whose turn it is comes first
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


class Unfinished(Exception):  # noqa: N818 - it is no error
    """There is more to look at for somebody of this namespace than one turn of the loop holds. The next one goes on from there."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        self.namespace = namespace


class Intake:
    """Lets pods and claims in."""

    def __init__(
        self,
        cluster: Cluster,
        bridge: Bridge,
        wants_of_pod: WantsOfPod,
        metrics: Metrics,
    ) -> None:
        """`wants_of_pod` says which claims will be made for a pod."""
        self._bridge = bridge
        self._wants_of_pod = wants_of_pod
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._demands = Demands()
        self._turns = Turns()
        self.steps, self.patience = STEPS, PATIENCE
        self.book = Book()
        knowledge = bridge.knowledge
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

    def admit(self, newcomer: Newcomer) -> str:
        """Let somebody in, and remember it, or say why not.

        Raise Refusal where that cannot be said now, and Unfinished where there is more to look at than one turn holds.
        """
        try:
            return self._ask(newcomer, partial(self._demands.look, budget=Budget(self.steps)))
        except OutOfBudget:
            raise Unfinished(newcomer.namespace) from None

    def admit_by_what_is_known(self, newcomer: Newcomer) -> str:
        """Do the same without another look."""
        return self._ask(newcomer, self._demands.at_hand)

    async def in_turns(self, namespace: str, ask: Callable[[Callable[[Newcomer], str]], T]) -> T:
        """Ask turn by turn until there is an answer."""
        until = self._clock() + self.patience
        while self._clock() < until:
            await self._turns.wait(namespace)
            try:
                return ask(self.admit)
            except Unfinished:
                continue
        return ask(self.admit_by_what_is_known)

    def _ask(self, newcomer: Newcomer, demand_in: DemandIn) -> str:
        self._bridge.lead.demand_ready()
        self._bridge.lead.demand_lead()
        if not self._templates.health.synced:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "templates were not read yet", "ask again in a moment")
        knowledge = self._bridge.knowledge
        stock = knowledge.stock
        self.book.expire(self._clock())
        demand = partial(demand_in, stock=stock)
        quotas = knowledge.quotas.objects.values()
        held = partial(held_of_quota, stock=stock, find_pod=knowledge.pod)
        waiting = partial(
            self.book.waiting,
            stock=stock,
            demand=demand,
            find_pod=knowledge.pod,
            find_spec=self._spec,
            but=newcomer.uid,
        )
        indoors = Indoors(quotas, held, waiting, demand, self._spec)
        wanted = indoors.wanted_by(newcomer)
        lines = indoors.lines_for(newcomer, wanted)
        crossed = [str(line) for line in lines if line.exceeded]
        self._metrics.count_review("refused" if crossed else "admitted")
        if lines and not crossed and not newcomer.dry_run:
            self.book.admit(newcomer, self._clock())
        if crossed:
            core = self._core.objects.values()
            crossed.append(beside_core(core, newcomer.namespace, wanted, stock.classes))
        return "; ".join(filter(None, crossed))

    def _spec(self, namespace: str, name: str) -> ResourceClaimSpec | None:
        found = self._templates.objects.get((namespace, name))
        return found.spec.spec if found is not None else None

    def _take_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            old, new = delta.old, delta.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self.book.lose_pod(old)
            if new is not None and new.spec.resource_claims:
                self.book.see_pod(new, self._wants_of_pod(new))

    def _take_claims(self, batch: Batch[ResourceClaim]) -> None:
        for delta in batch.deltas:
            old, new = delta.old, delta.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self.book.lose_claim(old)
            if new is not None:
                self.book.see_claim(new)
