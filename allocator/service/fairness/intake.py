"""The door under quotas: who is let in, by who leads. A replica that follows hands the question on to the one that leads.

What was let in and has no devices yet is in a book that every replica keeps from what it sees stored; only who was let in a moment ago,
and is not stored yet, is known to the leader alone. A dry run is answered by the same book, and leaves nothing in it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from allocator.intake import Book, Indoors, beside_core
from allocator.service.bridge import Refusal
from cluster.informers import Informer
from cluster.resources import RESOURCE_CLAIM_TEMPLATES, RESOURCE_QUOTAS
from dra.budget import Budget
from dra.policy import Demands, held_of_quota

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.intake import Newcomer, Wanted
    from allocator.service.bridge import Bridge
    from cluster.informers import Batch
    from cluster.protocol import Cluster
    from dra.objects import Pod, ResourceClaim, ResourceClaimSpec

    WantsOfPod = Callable[[Pod], Mapping[str, Wanted]]

STEPS = 200_000  # of looking at devices for one review, about a microsecond each


class Intake:
    """Lets pods and claims in."""

    def __init__(
        self,
        cluster: Cluster,
        bridge: Bridge,
        wants_of_pod: WantsOfPod,
        *,
        count: Callable[[str], None],
    ) -> None:
        """`wants_of_pod` says which claims will be made for a pod; `count` is for metrics."""
        self._bridge = bridge
        self._wants_of_pod = wants_of_pod
        self._count = count
        self._clock = asyncio.get_running_loop().time
        self._demands = Demands()
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
        """Let somebody in, and remember it, or say why not; raise Refusal where that cannot be said now."""
        self._bridge.demand_ready()
        self._bridge.demand_lead()
        if not self._templates.health.synced:
            raise Refusal(503, "templates were not read yet", "ask again in a moment")
        knowledge = self._bridge.knowledge
        stock = knowledge.stock
        self.book.expire(self._clock())
        budget = Budget(STEPS)
        demand = partial(self._demands.of, stock=stock, budget=budget)
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
        self._count("refused" if crossed else "admitted")
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
