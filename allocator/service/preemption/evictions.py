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
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import as_granted
from allocator.decisions import name_pods, with_pods
from allocator.one_node import Options
from allocator.pods import barriers, requests
from allocator.preemption import (
    Choice,
    Victims,
    claims_in_reach,
    fewest_to_end,
    holders_below,
    make_room,
    make_room_on,
    may_preempt,
    priority,
    run_to_end,
    without_pods,
    without_unused_claims,
)
from allocator.service.app import HttpError
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
    from dra.objects import PodDisruptionBudget, ResourceClaim
    from dra.stock import Stock

logger = logging.getLogger("drawbridge.allocator")
MANAGER = "drawbridge-allocator"
LOOK_SECONDS = 2.0  # for one pod; the scheduler waits for five
KEEP_SECONDS = 0.5  # for one that others pass
TURN = 0.01  # seconds after which others on the loop get a turn
STEPS = 2_000_000  # for all that is asked about one pod, about a microsecond each
ASKED = 5_000  # of a search for one of these questions: 40 ms, in which no other call has a turn
TRUSTED = 60.0  # seconds for which a copy is believed that was not confirmed
REMEMBERED = 1024  # evictions that budgets may not know of yet
TARGET = "DisruptionTarget"
REASON = "PreemptionByScheduler"
NO_ROOM = "evicting lower-priority pods would not free enough devices"

T = TypeVar("T")

# Pods, each with the node that it is to have: one pod, or the members of a group in the order in which they are placed.
Places: TypeAlias = "Sequence[tuple[Pod, str]]"
# What a pod's claims get on a node of a stock; None if they cannot have it. And whether pods fit on their nodes once some are gone.
Serve = Callable[[Pod, str, "Stock", Options], "Sequence[ResourceClaim] | None"]
Suffices = Callable[[Victims], bool]


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

    async def answer(self, asking: Asking[T], suffices: Suffices = lambda _: False) -> T:
        """Answer all that is asked, in turns, as long as there is time."""
        try:
            victims = next(asking)
            while True:
                answer = victims is not None and suffices(victims)
                await self.take()
                victims = asking.send(None if self.over else answer)
        except StopIteration as end:
            found: T = end.value
            return found


class Evictions:
    """Evicts pods to make room."""

    def __init__(
        self,
        bridge: Bridge,
        *,
        trusted: float = TRUSTED,
        turn: float = TURN,
    ) -> None:
        self._trusted = trusted
        self._turn = turn
        self._bridge = bridge
        self._one_at_a_time = asyncio.Lock()
        self._evicted: deque[_Evicted] = deque(maxlen=REMEMBERED)

    async def make_room(self, pod: Pod, nodes: Iterable[str]) -> Preemption:
        """Choose a node and the victims on it, and evict them."""
        async with self._one_at_a_time:
            pod = self._bridge.pods.newest(pod)
            return await self._make_room([(pod, node) for node in nodes], together=False)

    async def make_room_together(self, places: Places) -> Preemption:
        """Choose the victims for a group whose members have a node each, and evict them."""
        async with self._one_at_a_time:
            return await self._make_room([(self._bridge.pods.newest(pod), node) for pod, node in places], together=True)

    async def _make_room(self, places: Places, *, together: bool) -> Preemption:
        found = await self._choose(places, together=together)
        if isinstance(found, Preemption):
            made = found
        else:
            made = await self._evict_all(found, places if together else [(places[0][0], found.node)])
        self._bridge.metrics.room.labels(made.outcome).inc()
        return made

    async def advise(self, pod: Pod, nodes: Iterable[str]) -> str:
        """Name the pods that would have to be evicted for a pod; "" if that would not help, or some are leaving already. Evicts none."""
        async with self._one_at_a_time:
            found = await self._choose([(pod, node) for node in nodes], together=False)
        if isinstance(found, Preemption) or not found.pods:
            self._bridge.metrics.room.labels(found.outcome if isinstance(found, Preemption) else "waits").inc()
            return ""
        self._bridge.metrics.room.labels("advised").inc()
        return f"would fit on {found.node} if lower-priority {name_pods(pod, found.pods)} were evicted; no pod is evicted (--extender-preemption)"

    async def _choose(self, places: Places, *, together: bool) -> Preemption | Victims:
        """Choose the victims at one of some places, or at all of them together; or say why there are none."""
        bridge = self._bridge
        bridge.lead.demand_ready()
        # Old copies do not tell which pods a budget protects, and which have gone already.
        if silent := bridge.knowledge.silent_for(self._trusted):
            problem = f"no pod is evicted: there was no update about {silent} for {self._trusted:.0f} s"
            remedy = "check the API server and the allocator's rights"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, remedy)
        if not places:
            return Preemption(message=NO_ROOM)
        pod = places[0][0]
        if not may_preempt(pod):
            return Preemption(message="the pod's preemptionPolicy is Never")
        stock, holders = await self._stock_and_holders(pod)
        nominations = bridge.pods.nominations
        awaited = {one.metadata.uid: (one, node) for one, _ in places if (node := nominations.node_of(one))}
        nodes = tuple(node for _, node in awaited.values() if node in stock.nodes)
        if nodes and (going := holders.potential_victims(nodes, stock).leaving):
            for one, node in awaited.values():
                nominations.nominate(one, node, going)
            return Preemption(tuple(awaited.values()), (), f"waits for {name_pods(pod, going)} to end")
        suffices = self._suffices_at(places, stock, self._serve, together=together)
        found = await self._least_disruptive([node for _, node in places], holders, stock, suffices, together=together)
        return Preemption(message=NO_ROOM) if found is None else found

    async def keep_a_node(self) -> None:
        """Keep the node on which the fewest pods, none more important, have to end by themselves for the pod to fit whose turn it is."""
        bridge = self._bridge
        pod = bridge.pods.nominations.next_starved_pod(bridge.questions.is_node_useful)
        if pod is None:
            return
        more = replace(pod, spec=replace(pod.spec, priority=priority(pod) + 1))  # than its equals
        stock, holders = await self._stock_and_holders(more)
        may_run = barriers(pod, [name for name in requests(pod) if "/" in name])
        fits = self._suffices_at([(pod, node) for node in stock.nodes], stock, self._serve)

        def suffices(victims: Victims) -> bool:
            return next(may_run(stock.nodes[victims.node], {}), None) is None and fits(victims)

        candidate = await self._long_work(KEEP_SECONDS).answer(fewest_to_end(stock.nodes, holders, stock), suffices)
        if candidate is None:
            bridge.pods.nominations.give_up(pod)
        else:
            bridge.pods.nominations.keep_node(pod, candidate.node, (*candidate.staying, *candidate.leaving))

    async def _stock_and_holders(self, pod: Pod) -> tuple[Stock, Holders]:
        """Answer with the stock in which pods that are gone hold nothing, and with those in it that are less important than a pod."""
        known, work = self._bridge.knowledge.stock, self._long_work()
        stock = await work.answer(without_unused_claims(known, tuple(known.claims), self._bridge.knowledge.pod))
        return stock, await work.answer(self._holders_below(pod, stock))

    async def predict_victims(self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Victims | None:
        """Name the victims for a pod that may not exist yet, with claims that have no devices. Evicts none."""
        if not may_preempt(pod):
            return None
        stock = self._bridge.knowledge.stock
        holders = await self._long_work().answer(self._holders_below(pod, stock))

        def serve(_: Pod, node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
            answer = allocate(after, node, claims, options=options)
            return as_granted(claims, answer) if answer.feasible else None

        names = list(nodes)
        suffices = self._suffices_at([(pod, node) for node in names], stock, serve)
        return await self._least_disruptive(names, holders, stock, suffices)

    def stock_and_preemptable(self, pod: Pod) -> tuple[Stock, Holders]:
        """Answer with the stock once those are gone that leave already, and with the pods that could be made to go for a pod."""
        known = self._bridge.knowledge.stock
        stock = run_to_end(without_unused_claims(known, tuple(known.claims), self._bridge.knowledge.pod))
        holders = run_to_end(self._holders_below(pod, stock))
        leaving = [one for one in holders.pods() if one.metadata.deletion_timestamp]
        return without_pods(stock, leaving), holders

    def stock_with_room(self, pod: Pod, node: str, stock: Stock, holders: Holders) -> Stock:
        """Answer with the stock without those that have to go for a pod to fit on a node; as it is if that would not do."""
        suffices = self._suffices_at([(pod, node)], stock, self._serve)
        found = run_to_end(make_room_on(holders.potential_victims((node,), stock), holders), suffices)
        return stock if found is None else without_pods(stock, found.pods)

    async def _least_disruptive(
        self, nodes: Iterable[str], holders: Holders, stock: Stock, suffices: Suffices, *, together: bool = False
    ) -> Victims | None:
        """Find the choice that disrupts least, in the time there is."""
        existing = [node for node in nodes if node in stock.nodes]
        if not existing:
            return None
        return await self._long_work(LOOK_SECONDS).answer(
            make_room(existing, holders, stock, together=together), suffices
        )

    def _long_work(self, seconds: float = inf) -> _LongWork:
        return _LongWork(seconds, self._turn)

    def _holders_below(self, pod: Pod, stock: Stock) -> Asking[Holders]:
        """Find the pods that could be evicted for a pod."""
        others = [other for other in self._current_pods() if claim_names(other)]
        budgets: list[PodDisruptionBudget] = []  # as they are once they have heard of all evictions
        for budget in self._bridge.knowledge.budgets.objects.values():
            key, version = budget.metadata.key, budget.metadata.resource_version
            unheard = sum(one.versions.get(key) == version for one in self._evicted)
            left = max(0, budget.status.disruptions_allowed - unheard)
            status = replace(budget.status, disruptions_allowed=left)
            budgets.append(replace(budget, status=status) if unheard else budget)
        return holders_below(pod, others, stock, budgets)

    def _current_pods(self) -> Iterator[Pod]:
        """Walk through the pods as they are, though our copy may not have heard of it; one that is being bound is on its node."""
        evicted = {one.uid: one.at for one in self._evicted}
        reserved = self._bridge.ledger.state.reservations
        for pod in self._bridge.knowledge.pods.objects.values():
            meta = pod.metadata
            since = evicted.get(meta.uid)
            if not pod.spec.node_name and meta.uid in reserved:
                pod = replace(pod, spec=replace(pod.spec, node_name=reserved[meta.uid].node))  # noqa: PLW2901
            if since and not meta.deletion_timestamp:
                yield replace(pod, metadata=replace(meta, deletion_timestamp=since))
            else:
                yield pod

    def _serve(self, pod: Pod, node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
        bridge = self._bridge
        placement, _ = bridge.pods.placement_of(pod)
        serving = bridge.decider.serve(pod, node, after, placement, uncached=options)
        return None if isinstance(serving, str) else serving.allocated_claims()

    def _suffices_at(self, places: Places, stock: Stock, serve: Serve, *, together: bool = False) -> Suffices:
        """Say how it is found out whether pods fit once some are gone, one at the place asked or all `together`: devices, and quota."""
        bridge = self._bridge
        pod = places[0][0]
        group = {one.metadata.uid for one, _ in places}
        options = Options(steps=ASKED, budget=Budget(STEPS * len(group)))
        nominations = bridge.pods.nominations
        rivals = nominations.rivals(pod, bridge.ledger.state, group)
        nominated_elsewhere = bridge.questions.nominated_in_shared_pools(pod, group)

        def suffices(victims: Victims) -> bool:
            chosen = places if together else [(pod, victims.node)]
            after = without_pods(stock, victims.pods)
            nodes = dict.fromkeys(node for _, node in chosen)
            others = nominated_elsewhere | {node: rivals.get(node, []) for node in nodes}
            for node, ahead in others.items():
                after = with_pods(after, node, ahead)
            full = bridge.ledger.full_nodes(pod, victims.pods)
            for one, node in chosen:
                given = None if node in full else serve(one, node, after, options)
                if given is None:
                    if any(others.values()):
                        nominations.give_way(one)
                    return False
                if any(line.exceeded for line in bridge.quotas.lines(one, given, after)):
                    return False
                after = after.with_all(given)
            return True

        return suffices

    async def _evict_all(self, found: Victims, places: Places) -> Preemption:
        """Evict the victims, one by one, as long as it is of use."""
        bridge = self._bridge
        pod = places[0][0]
        evicted: list[Pod] = []
        # Also where pods that are leaving make room enough: what they free is for this pod, whichever node it is reached from.
        leaving = [
            one for one in self._current_pods() if one.metadata.deletion_timestamp and priority(one) < priority(pod)
        ]
        for one, node in places:
            bridge.pods.nominations.nominate(one, node, (*found.pods, *leaving))
        for victim in found.pods:
            suffices = self._suffices_now(places)
            if not suffices(found.pods):
                for one, _ in places:
                    bridge.pods.nominations.give_up(one)
                return Preemption(message="devices changed during preemption; no other pod is evicted")
            if suffices(tuple(evicted)):
                break
            await self._evict(victim, pod)
            evicted.append(victim)
        message = f"evicted {name_pods(pod, evicted)}" if evicted else "a preemption is running already"
        return Preemption(tuple(places), tuple(evicted), message)

    def _suffices_now(self, places: Places) -> Callable[[Choice], bool]:
        """Say by what is known now whether a choice does, beside the pods that are leaving."""
        knowledge = self._bridge.knowledge
        current = knowledge.stock
        nodes = tuple(dict.fromkeys(node for _, node in places))
        if any(node not in current.nodes for node in nodes):
            return lambda _: False
        claims: set[str] = set()
        for node in nodes:
            claims.update(claims_in_reach(node, current))
        stock = run_to_end(without_unused_claims(current, tuple(claims), knowledge.pod))
        all_leaving = [other for other in self._current_pods() if other.metadata.deletion_timestamp]
        first, _ = places[0]
        holders = run_to_end(holders_below(first, all_leaving, stock))
        leaving = holders.potential_victims(nodes, stock).leaving
        suffices = self._suffices_at(places, stock, self._serve, together=True)

        def suffices_now(choice: Choice) -> bool:
            return suffices(Victims(nodes[0], (*choice, *leaving)))

        return suffices_now

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
        self._bridge.lead.demand_lead()
        try:
            patch = Apply(body, MANAGER, force=True)
            await self._bridge.cluster.patch(PODS, meta.name, patch, meta.namespace, subresource="status")
            self._bridge.lead.demand_lead()
            await self._bridge.cluster.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            self._bridge.metrics.evictions.labels("gone").inc()  # by itself, and another pod may have its name
            return
        except ApiError as error:
            self._bridge.metrics.evictions.labels("failed").inc()
            problem = f"{name_pods(pod, (victim,))} could not be evicted: {error.message}"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, "check the allocator's rights, or wait") from None
        budgets = self._bridge.knowledge.budgets.objects.values()
        versions = {one.metadata.key: one.metadata.resource_version for one in budgets if protects(one, victim)}
        self._evicted.append(_Evicted(meta.uid, now_of_the_wall(), versions))
        self._bridge.metrics.evictions.labels("evicted").inc()
        logger.info("a pod is evicted", extra={"pod": meta.key, "for": pod.metadata.key})
        await self._bridge.ledger.record_event(victim, why)
