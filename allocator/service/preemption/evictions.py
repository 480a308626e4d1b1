"""Evictions that make room for a pod: `allocator.service.preemption.choices` chooses the victims, from what is known here.

As kube-scheduler does it: the condition DisruptionTarget, so that Jobs know, and then the deletion, of exactly the pod that was seen.
Nothing is held for the pod: the scheduler nominates the node, and shows us nominated pods with each question about less important ones.

One choice at a time. Before each eviction it is checked again whether the choice still does, and is still needed: while the API server
takes its time, devices vanish and others are freed. A crash in between leaves nothing that the next leader would have to know: pods
that are leaving by then cost nothing, so it goes on with the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import Decider, name_pods
from allocator.preemption import may_preempt, priority
from allocator.service.app import HttpError
from allocator.service.preemption import choices
from allocator.service.preemption.choices import Scene
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Apply
from cluster.resources import PODS
from dra.objects import Pod, protects
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from allocator.preemption import Victims
    from allocator.service.knowledge import Knowledge, Lead
    from allocator.service.live_ledger import LiveLedger
    from allocator.service.metrics import Metrics
    from allocator.service.pending_pods import PendingPods
    from allocator.service.preemption.choices import Choice, Places
    from allocator.service.preemption.nominations import KeptNode
    from allocator.service.question_runner import QuestionRunner
    from allocator.service.quota.quotas import Quotas
    from cluster.protocol import Cluster
    from dra.objects import PodDisruptionBudget, ResourceClaim

logger = logging.getLogger("drawbridge.allocator")
MANAGER = "drawbridge-allocator"
LOOK_SECONDS = 2.0  # for one pod; the scheduler waits for five
KEEP_SECONDS = 0.5  # for one that others pass
TRUSTED = 60.0  # seconds for which a copy is believed that was not confirmed
REMEMBERED = 1024  # evictions that budgets may not know of yet
TARGET = "DisruptionTarget"
REASON = "PreemptionByScheduler"
NO_ROOM = "evicting lower-priority pods would not free enough devices"


class Preemption(msgspec.Struct, frozen=True):
    """Where pods will fit once their victims are gone; no place, and why, if no eviction helps."""

    places: tuple[tuple[Pod, str], ...] = ()
    victims: tuple[Pod, ...] = ()
    message: str = ""

    @property
    def outcome(self) -> str:
        if not self.places:
            return "nobody"
        return "made" if self.victims else "waits"


class _Evicted(msgspec.Struct, frozen=True):
    """A pod that was evicted, and the versions of its budgets then: one that has changed since counts it by itself."""

    uid: str
    at: str  # the time of the wall
    versions: dict[str, str]  # by namespace/name


class Evictions:
    """Evicts pods to make room."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        knowledge: Knowledge,
        lead: Lead,
        pods: PendingPods,
        ledger: LiveLedger,
        quotas: Quotas,
        runner: QuestionRunner,
        metrics: Metrics,
        trusted: float = TRUSTED,
    ) -> None:
        self._cluster = cluster
        self._knowledge = knowledge
        self._lead = lead
        self._pods = pods
        self._ledger = ledger
        self._quotas = quotas
        self._runner = runner
        self._metrics = metrics
        self._trusted = trusted
        self._one_at_a_time = asyncio.Lock()
        self._evicted: deque[_Evicted] = deque(maxlen=REMEMBERED)

    async def make_room(self, pod: Pod, nodes: Iterable[str]) -> Preemption:
        """Choose a node and the victims on it, and evict them."""
        async with self._one_at_a_time:
            pod = self._pods.newest(pod)
            return await self._make_room([(pod, node) for node in nodes], together=False)

    async def make_room_together(self, places: Places) -> Preemption:
        """Choose the victims for a group whose members have a node each, and evict them."""
        async with self._one_at_a_time:
            return await self._make_room([(self._pods.newest(pod), node) for pod, node in places], together=True)

    async def _make_room(self, places: Places, *, together: bool) -> Preemption:
        found = await self._choose(places, together=together)
        if isinstance(found, Preemption):
            made = found
        else:
            made = await self._evict_all(found, places if together else [(places[0][0], found.node)])
        self._metrics.room.labels(made.outcome).inc()
        return made

    async def advise(self, pod: Pod, nodes: Iterable[str]) -> str:
        """Name the pods that would have to be evicted for a pod; "" if that would not help, or some are leaving already. Evicts none."""
        async with self._one_at_a_time:
            found = await self._choose([(pod, node) for node in nodes], together=False)
        if isinstance(found, Preemption) or not found.pods:
            self._metrics.room.labels(found.outcome if isinstance(found, Preemption) else "waits").inc()
            return ""
        self._metrics.room.labels("advised").inc()
        return f"would fit on {found.node} if lower-priority {name_pods(pod, found.pods)} were evicted; no pod is evicted (--extender-preemption)"

    async def _choose(self, places: Places, *, together: bool) -> Preemption | Victims:
        """Choose the victims at one of some places, or at all of them together; or say why there are none."""
        self._lead.demand_ready()
        # Old copies do not tell which pods a budget protects, and which have gone already.
        if silent := self._knowledge.silent_for(self._trusted):
            problem = f"no pod is evicted: there was no update about {silent} for {self._trusted:.0f} s"
            remedy = "check the API server and the allocator's rights"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, remedy)
        if not places:
            return Preemption(message=NO_ROOM)
        pod = places[0][0]
        if not may_preempt(pod):
            return Preemption(message="the pod's preemptionPolicy is Never")
        nominations = self._pods.nominations
        awaited = tuple(
            {one.metadata.uid: (one, node) for one, _ in places if (node := nominations.node_of(one))}.values()
        )
        question = partial(choices.choose, places, awaited, self.scene(places), together=together)
        choice: Choice = await self._runner.search(pod.metadata.namespace, question, LOOK_SECONDS)
        for one in choice.give_way:
            nominations.give_way(one)
        if choice.leaving:
            for one, node in awaited:
                nominations.nominate(one, node, choice.leaving)
            return Preemption(awaited, (), f"waits for {name_pods(pod, choice.leaving)} to end")
        return choice.victims or Preemption(message=NO_ROOM)

    async def keep_a_node(self, is_useful: Callable[[Pod, KeptNode], bool]) -> None:
        """Keep a node for the pod whose turn it is. `is_useful` says whether a pod would fit on the node that is kept for it."""
        nominations = self._pods.nominations
        pod = nominations.next_starved_pod(is_useful)
        if pod is None:
            return
        question = partial(choices.fewest, pod, self.scene([(pod, "")]))
        candidate = await self._runner.search(pod.metadata.namespace, question, KEEP_SECONDS)
        if candidate is None:
            nominations.give_up(pod)
        else:
            nominations.keep_node(pod, candidate.node, (*candidate.staying, *candidate.leaving))

    def predict_victims(self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Victims | None:
        """Name the victims for a pod that may not exist yet, with claims that have no devices. Evicts none."""
        if not may_preempt(pod):
            return None
        decider, until = Decider(), monotonic() + LOOK_SECONDS
        decider.is_impatient = lambda: monotonic() > until
        return choices.predict(pod, claims, nodes, self.scene([(pod, "")]), decider)

    def scene(self, places: Places) -> Scene:
        """Gather what a choice for some pods rests on."""
        state, pods = self._ledger.state, dict(self._knowledge.pods.objects)
        group = {one.metadata.uid for one, _ in places}
        return Scene(
            stock=self._knowledge.stock,
            pods=pods,
            evicted={one.uid: one.at for one in self._evicted},
            reserved={reservation.pod: reservation.node for reservation in state.reservations.values()},
            budgets=self._current_budgets(),
            rivals=self._pods.nominations.rivals(places[0][0], state, group),
            placements={one.metadata.uid: self._pods.placement_of(one)[0] for one, _ in places},
            quota_lines=self._quotas.lines_among(pods),
            most_pods=self._pods.rules.most_pods,
            occupied=self._ledger.reserved_nodes(),
        )

    def _current_budgets(self) -> list[PodDisruptionBudget]:
        """List the budgets as they are once they have heard of all evictions."""
        budgets: list[PodDisruptionBudget] = []
        for budget in self._knowledge.budgets.objects.values():
            key, version = budget.metadata.key, budget.metadata.resource_version
            unheard = sum(one.versions.get(key) == version for one in self._evicted)
            left = max(0, budget.status.disruptions_allowed - unheard)
            status = replace(budget.status, disruptions_allowed=left)
            budgets.append(replace(budget, status=status) if unheard else budget)
        return budgets

    async def _evict_all(self, found: Victims, places: Places) -> Preemption:
        """Evict the victims, one by one, as long as it is of use."""
        pod = places[0][0]
        nominations = self._pods.nominations
        evicted: list[Pod] = []
        # Also where pods that are leaving make room enough: what they free is for this pod, whichever node it is reached from.
        leaving = [
            leaving_pod for leaving_pod in self.scene(places).leaving_pods() if priority(leaving_pod) < priority(pod)
        ]
        for one, node in places:
            nominations.nominate(one, node, (*found.pods, *leaving))
        for victim in found.pods:
            question = partial(choices.still_suffice, places, (found.pods, tuple(evicted)), self.scene(places))
            (does, is_enough), give_way = await self._runner.search(pod.metadata.namespace, question, LOOK_SECONDS)
            for one in give_way:
                nominations.give_way(one)
            if not does:
                for one, _ in places:
                    nominations.give_up(one)
                return Preemption(message="devices changed during preemption; no other pod is evicted")
            if is_enough:
                break
            await self._evict(victim, pod)
            evicted.append(victim)
        message = f"evicted {name_pods(pod, evicted)}" if evicted else "a preemption is running already"
        return Preemption(tuple(places), tuple(evicted), message)

    async def _evict(self, victim: Pod, pod: Pod) -> None:
        meta = victim.metadata
        why = f"preempted by {name_pods(victim, (pod,))}, which has a higher priority"
        condition = {"type": TARGET, "status": "True", "reason": REASON, "message": why}
        condition["lastTransitionTime"] = now_of_the_wall()
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"conditions": [condition]},
        }
        self._lead.demand_lead()
        try:
            patch = Apply(body, MANAGER, force=True)
            await self._cluster.patch(PODS, meta.name, patch, meta.namespace, subresource="status")
            self._lead.demand_lead()
            await self._cluster.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            self._metrics.evictions.labels("gone").inc()  # by itself, and another pod may have its name
            return
        except ApiError as error:
            self._metrics.evictions.labels("failed").inc()
            problem = f"{name_pods(pod, (victim,))} could not be evicted: {error.message}"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "check the allocator's rights, or wait") from None
        budgets = self._knowledge.budgets.objects.values()
        versions = {
            budget.metadata.key: budget.metadata.resource_version for budget in budgets if protects(budget, victim)
        }
        self._evicted.append(_Evicted(meta.uid, now_of_the_wall(), versions))
        self._metrics.evictions.labels("evicted").inc()
        logger.info("a pod is evicted", extra={"pod": meta.key, "for": pod.metadata.key})
        await self._ledger.record_event(victim, why)
