"""Evictions that make room for a pod: `allocator.preemption` chooses the victims, from what is known here.

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
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import as_granted
from allocator.decisions import Unserved, name_pods, with_pods
from allocator.one_node import Options
from allocator.preemption import (
    Choice,
    Victims,
    held_near,
    holders_below,
    make_room,
    may_preempt,
    settle,
    without_pods,
    without_the_gone,
)
from allocator.service.replies import Refusal
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Apply
from cluster.resources import PODS
from dra.budget import Budget
from dra.objects import Pod, claim_names, protects
from runtime.controllers import now_of_the_wall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from allocator.preemption import Asking, Holders
    from allocator.service.bridge import Bridge
    from allocator.service.metrics import Metrics
    from cluster.protocol import Cluster
    from dra.objects import PodDisruptionBudget, ResourceClaim
    from dra.stock import Stock

logger = logging.getLogger("drawbridge.allocator")
MANAGER = "drawbridge-allocator"
LOOK_SECONDS = 2.0  # for one pod; the scheduler waits for five
TURN = 0.01  # seconds after which others on the loop get a turn
STEPS = 2_000_000  # for all that is asked about one pod, about a microsecond each
ASKED = 5_000  # of a search for one of these questions: 40 ms, in which nobody has a turn
TRUSTED = 60.0  # seconds for which a copy is believed that nobody has confirmed
REMEMBERED = 1024  # evictions that budgets may not know of yet
TARGET = "DisruptionTarget"
REASON = "PreemptionByScheduler"

T = TypeVar("T")

# What claims get on a node of a stock; None if they cannot have it. And whether the pod fits on a node once some are gone.
Serve = Callable[[str, "Stock", Options], "Sequence[ResourceClaim] | None"]
Does = Callable[[Victims], bool]


class Preemption(msgspec.Struct, frozen=True):
    """Where a pod will fit once its victims are gone; no node, and why, if no eviction helps."""

    node: str = ""
    victims: tuple[Pod, ...] = ()
    message: str = ""

    @property
    def outcome(self) -> str:
        if not self.node:
            return "nobody"
        return "made" if self.victims else "waits"


class _Evicted(msgspec.Struct, frozen=True):
    """A pod that was evicted, and the versions of its budgets then: one that has changed since counts it by itself."""

    uid: str
    at: str  # the time of the wall
    versions: dict[str, str]  # by namespace/name


class _LongWork:
    """Lets others on the loop have their turn in the midst of long work, and knows when the time for it is over."""

    def __init__(self, seconds: float, turn: float) -> None:
        self._turn = turn
        self._clock = asyncio.get_running_loop().time
        self._begun = self._clock()
        self._until = self._begun + seconds

    @property
    def over(self) -> bool:
        return self._clock() > self._until

    async def take(self) -> None:
        """Let others have a turn, if this one has lasted long enough."""
        if self._clock() - self._begun >= self._turn:
            await asyncio.sleep(0)
            self._begun = self._clock()

    async def answer(self, asking: Asking[T], does: Does = lambda _: False) -> T:
        """Answer all that is asked, in turns, as long as there is time."""
        try:
            asked = next(asking)
            while True:
                answer = asked is not None and does(asked)
                await self.take()
                asked = asking.send(None if self.over else answer)
        except StopIteration as end:
            found: T = end.value
            return found


class Evictions:
    """Evicts pods to make room."""

    def __init__(
        self,
        cluster: Cluster,
        bridge: Bridge,
        metrics: Metrics,
        *,
        trusted: float = TRUSTED,
        turn: float = TURN,
    ) -> None:
        self._trusted = trusted
        self._turn = turn
        self._cluster = cluster
        self._bridge = bridge
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self._evicted: deque[_Evicted] = deque(maxlen=REMEMBERED)

    async def make_room(self, pod: Pod, nodes: Iterable[str]) -> Preemption:
        """Choose a node and the victims on it, and evict them."""
        async with self._one_at_a_time:
            pod = self._bridge.pods.newest(pod)
            found = await self._choose(pod, nodes)
            made = found if isinstance(found, Preemption) else await self._evict_all(found, pod)
        self._metrics.room.labels(made.outcome).inc()
        return made

    async def advise(self, pod: Pod, nodes: Iterable[str]) -> str:
        """Name the pods that would have to be evicted for a pod; "" if that would not help, or some are leaving already. Evicts none."""
        async with self._one_at_a_time:
            found = await self._choose(pod, nodes)
        if isinstance(found, Preemption) or not found.pods:
            self._metrics.room.labels(found.outcome if isinstance(found, Preemption) else "waits").inc()
            return ""
        self._metrics.room.labels("advised").inc()
        return f"would fit on {found.node} once {name_pods(pod, found.pods)} had gone, less important; no pod is evicted (--extender-preemption)"

    async def _choose(self, pod: Pod, nodes: Iterable[str]) -> Preemption | Victims:
        """Choose a node and the victims on it, or say why there are none."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        # Old copies do not tell which pods a budget protects, and which have gone already.
        if silent := bridge.knowledge.silent_for(self._trusted):
            problem = f"no pod is evicted: nothing was heard of {silent} for {self._trusted:.0f} s"
            remedy = "see the API server, and the rights of the allocator"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, remedy)
        if not may_preempt(pod):
            return Preemption(message="the pod's preemptionPolicy is Never")
        known = bridge.knowledge.stock
        work = self._work()
        stock = await work.answer(without_the_gone(known, tuple(known.claims), bridge.knowledge.pod))
        holders = await work.answer(self._holders_below(pod, stock))
        nominated = bridge.pods.nominations.node_of(pod)
        if nominated in stock.nodes and (going := holders.near(nominated, stock).leaving):
            bridge.pods.nominations.nominate(pod, nominated)
            return Preemption(nominated, (), f"waits for {name_pods(pod, going)} to end")
        does = self._does(pod, stock, self._serving(pod))
        found = await self._look(nodes, holders, stock, does)
        if found is None:
            return Preemption(message="no pod of less priority could make room by going")
        return found

    async def foresee(self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Victims | None:
        """Name the victims for a pod that may not exist yet, with claims that have no devices. Evicts none."""
        if not may_preempt(pod):
            return None
        stock = self._bridge.knowledge.stock
        holders = await self._work().answer(self._holders_below(pod, stock))

        def serve(node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
            answer = allocate(after, node, claims, options=options)
            return as_granted(claims, answer) if answer.feasible else None

        does = self._does(pod, stock, serve)
        return await self._look(nodes, holders, stock, does)

    async def _look(self, nodes: Iterable[str], holders: Holders, stock: Stock, does: Does) -> Victims | None:
        """Find the choice that disrupts least, in the time there is."""
        there = (node for node in nodes if node in stock.nodes)
        return await self._work(LOOK_SECONDS).answer(make_room(there, holders, stock), does)

    def _work(self, seconds: float = inf) -> _LongWork:
        return _LongWork(seconds, self._turn)

    def _holders_below(self, pod: Pod, stock: Stock) -> Asking[Holders]:
        """Find who could be made to go for a pod."""
        others = [other for other in self._known() if claim_names(other)]
        budgets: list[PodDisruptionBudget] = []  # as they are once they have heard of all evictions
        for budget in self._bridge.knowledge.budgets.objects.values():
            key, version = budget.metadata.key, budget.metadata.resource_version
            unheard = sum(one.versions.get(key) == version for one in self._evicted)
            left = max(0, budget.status.disruptions_allowed - unheard)
            status = replace(budget.status, disruptions_allowed=left)
            budgets.append(replace(budget, status=status) if unheard else budget)
        return holders_below(pod, others, stock, budgets)

    def _known(self) -> Iterator[Pod]:
        """Walk through the pods as they are, though our copy may not have heard of it."""
        evicted = {one.uid: one.at for one in self._evicted}
        for pod in self._bridge.knowledge.pods.objects.values():
            since = evicted.get(pod.metadata.uid)
            meta = pod.metadata
            if since and not meta.deletion_timestamp:
                yield replace(pod, metadata=replace(meta, deletion_timestamp=since))
            else:
                yield pod

    def _serving(self, pod: Pod) -> Serve:
        bridge = self._bridge
        placement = bridge.pods.placement_of(pod)

        def serve(node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
            serving = bridge.decider.serve(pod, node, after, placement, alone=options)
            return None if isinstance(serving, Unserved) else serving.allocated_claims()

        return serve

    def _does(self, pod: Pod, stock: Stock, serve: Serve) -> Does:
        """Say how it is found out whether a pod fits on a node once some are gone: places, devices, and quota."""
        bridge = self._bridge
        options = Options(steps=ASKED, budget=Budget(STEPS))
        rivals = bridge.pods.nominations.rivals(pod, bridge.ledger.state)
        nominated_elsewhere = bridge.questions.nominated_in_shared_pools(pod)

        def does(asked: Victims) -> bool:
            node, gone = asked.node, asked.pods
            if node in bridge.ledger.full_nodes(pod, gone):
                return False
            after = without_pods(stock, gone)
            others = rivals.get(node, ())
            for place, pods in (nominated_elsewhere | {node: others}).items():
                after = with_pods(after, place, pods)
            given = serve(node, after, options)
            if given is None:
                if others or nominated_elsewhere:
                    bridge.pods.nominations.give_way(pod)
                return False
            lines = bridge.quotas.lines(pod, given, after)
            return not any(line.exceeded for line in lines)

        return does

    async def _evict_all(self, found: Victims, pod: Pod) -> Preemption:
        """Evict the victims, one by one, as long as it is of use."""
        bridge = self._bridge
        gone: list[Pod] = []
        for victim in found.pods:
            does = self._does_now(found.node, pod)
            if not does(found.pods):
                return Preemption(message="devices changed during preemption; no other pod is evicted")
            if does(tuple(gone)):
                break
            bridge.pods.nominations.nominate(pod, found.node)
            await self._evict(victim, pod)
            gone.append(victim)
        message = f"{name_pods(pod, gone)} made to go" if gone else "room is being made already"
        return Preemption(found.node, tuple(gone), message)

    def _does_now(self, node: str, pod: Pod) -> Callable[[Choice], bool]:
        """Say by what is known now whether a choice does on a node, beside who is leaving."""
        knowledge = self._bridge.knowledge
        seen = knowledge.stock
        if node not in seen.nodes:
            return lambda _: False
        here = held_near(node, seen)
        releasing = without_the_gone(seen, here, knowledge.pod)
        stock = settle(releasing)
        leaving = [other for other in self._known() if other.metadata.deletion_timestamp]
        finding = holders_below(pod, leaving, stock)
        holders = settle(finding)
        near = holders.near(node, stock).leaving
        serve = self._serving(pod)
        does = self._does(pod, stock, serve)

        def does_now(choice: Choice) -> bool:
            gone = (*choice, *near)
            return does(Victims(node, gone))

        return does_now

    async def _evict(self, victim: Pod, pod: Pod) -> None:
        meta = victim.metadata
        why = f"makes room for {name_pods(victim, (pod,))}, which is more important"
        condition = {"type": TARGET, "status": "True", "reason": REASON, "message": why}
        condition["lastTransitionTime"] = now_of_the_wall()
        said = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"conditions": [condition]},
        }
        self._bridge.lead.demand_lead()
        try:
            patch = Apply(said, MANAGER, force=True)
            await self._cluster.patch(PODS, meta.name, patch, meta.namespace, subresource="status")
            self._bridge.lead.demand_lead()
            await self._cluster.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            self._metrics.evictions.labels("gone").inc()  # by itself, and somebody else may have its name
            return
        except ApiError as error:
            self._metrics.evictions.labels("failed").inc()
            problem = f"{name_pods(pod, (victim,))} could not be evicted: {error.message}"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, "see the rights of the allocator, or wait") from None
        budgets = self._bridge.knowledge.budgets.objects.values()
        versions = {one.metadata.key: one.metadata.resource_version for one in budgets if protects(one, victim)}
        self._evicted.append(_Evicted(meta.uid, now_of_the_wall(), versions))
        self._metrics.evictions.labels("evicted").inc()
        logger.info("a pod is evicted", extra={"pod": meta.key, "for": pod.metadata.key})
        await self._bridge.ledger.speak(victim, why)
