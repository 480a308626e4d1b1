"""Evict the victims that `allocator.service.preemption.choices` chose for a pod.

A victim is evicted as kube-scheduler does it. First the victim gets the condition DisruptionTarget, which Jobs read. Then it is deleted, if
it still has the uid that was seen. Nothing is reserved for the preempting pod: its node is nominated instead (`nominations`).

Preemptions run one at a time. Before each eviction, the choice is checked again: while the API server handles an eviction, devices can
vanish or become free, so that the choice no longer suffices or is no longer needed. A crash between the evictions of two units needs no
recovery. The next leader counts the devices of pods that are being deleted as free, and evicts only the pods that are still needed. A
PodGroup whose eviction has begun is evicted to its end (`finish`), also by the next leader.

Before a PodGroup preempts, its scheduler asks for a node for each member as if all pods of lower priority were gone (`choices.Supposed`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import name_pods
from allocator.preemption import may_preempt, pods_of, priority, units_of
from allocator.service.app import HttpError
from allocator.service.part import Part
from allocator.service.preemption import choices
from allocator.service.preemption.choices import Scene
from allocator.service.questions import why_not_fits, without
from cluster.controllers import api_timestamp
from cluster.errors import ApiError, Conflict, NotFound
from cluster.patch import Apply
from cluster.resources import PODS
from dra.objects import Pod, pod_group_key, protects

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from allocator.decisions import FleetOutlook
    from allocator.preemption import Unit, Victims
    from allocator.service.live_ledger import LiveLedger
    from allocator.service.part import Shared
    from allocator.service.preemption.choices import Places, Supposed, VictimChoice
    from allocator.service.preemption.nominations import KeptNode
    from dra.objects import Condition, PodDisruptionBudget

logger = logging.getLogger("drawbridge.allocator")
MANAGER = "drawbridge-allocator"
LOOK_SECONDS = 2.0  # for the search for one pod's victims; the scheduler waits five seconds
KEEP_SECONDS = 0.5  # for the search for a node that is kept for a starved pod
TRUSTED = 60.0  # no pod is evicted if a cached collection was not confirmed for this many seconds
REMEMBERED = 1024  # the latest evictions, which the status of budgets may not count yet
TARGET = "DisruptionTarget"
REASON = "PreemptionByScheduler"
SUPPOSED = "supposed-"  # the tokens of supposed placements begin with it
NO_ROOM = "evicting lower-priority pods would not free enough devices"


class Preemption(msgspec.Struct, frozen=True):
    """The nodes on which pods will fit once their victims are gone. If no eviction helps, `places` is empty and `message` says why."""

    places: tuple[tuple[Pod, str], ...] = ()
    victims: tuple[Pod, ...] = ()
    message: str = ""

    @property
    def outcome(self) -> str:
        if not self.places:
            return "nobody"
        return "made" if self.victims else "waits"


class _Evicted(msgspec.Struct, frozen=True):
    """An evicted pod, and the versions of its budgets at that time. Once a budget has a newer version, its status counts the eviction."""

    uid: str
    at: str  # wall-clock time
    versions: dict[str, str]  # by namespace/name


class Evictions(Part):
    """Evicts pods to make room."""

    def __init__(self, shared: Shared, ledger: LiveLedger) -> None:
        super().__init__(shared)
        self._ledger = ledger
        self._one_at_a_time = asyncio.Lock()
        self._evicted: deque[_Evicted] = deque(maxlen=REMEMBERED)
        # A scheduler places one group at a time, so only the latest attempt is kept.
        self._supposed: Supposed | None = None
        self._members: dict[str, tuple[Pod, Supposed]] = {}  # by token: a member, and the state before it was placed

    async def make_room(self, places: Places, *, together: bool = False) -> Preemption:
        """Choose and evict the victims: for a pod, on one of its candidate nodes; for a group, on the nodes of its members."""
        async with self._one_at_a_time:
            places = [(self._pods.newest(pod), node) for pod, node in places]
            choice = await self._choose(places, together=together)
            if isinstance(choice, Preemption):
                preemption = choice
            else:
                preemption = await self._evict_all(choice, places if together else [(places[0][0], choice.node)])
            self._metrics.preemptions.labels(preemption.outcome).inc()
            return preemption

    async def _choose(self, places: Places, *, together: bool) -> Preemption | Victims:
        """Choose the victims on one of the nodes, or on all nodes `together`. If there are no victims, return the reason."""
        self._lead.require_ready()
        # With an outdated cache, pods could be evicted in spite of a budget, or for devices that are already free.
        if silent_collections := self._knowledge.silent_for(TRUSTED):
            problem = f"no pod is evicted: there was no update about {silent_collections} for {TRUSTED:.0f} s"
            remedy = "check the API server and the allocator's rights"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, problem, remedy)
        if not places:
            return Preemption(message=NO_ROOM)
        pod = places[0][0]
        if not may_preempt(pod):
            return Preemption(message="the pod's preemptionPolicy is Never")
        nominations = self._pods.nominations
        awaited = tuple(
            {
                waiting_pod.metadata.uid: (waiting_pod, node)
                for waiting_pod, _ in places
                if (node := nominations.node_of(waiting_pod))
            }.values()
        )
        question = partial(choices.choose, places, awaited, self.scene(places), together=together)
        choice: VictimChoice = await self._runner.search(pod.metadata.namespace, question, LOOK_SECONDS)
        for refused_pod in choice.give_way:
            nominations.give_way(refused_pod)
        if choice.leaving:
            for waiting_pod, node in awaited:
                nominations.nominate(waiting_pod, node, choice.leaving)
            return Preemption(awaited, (), f"waits for {name_pods(pod, choice.leaving)} to end")
        return choice.victims or Preemption(message=NO_ROOM)

    async def suppose(self, pod: Pod, attempt: str, below: int) -> tuple[str, FleetOutlook]:
        """Return a token for the next member of a group, and the nodes that could serve it if pods with a priority below `below` were gone."""
        self._lead.require_ready()
        pod = self._pods.newest(pod)
        namespace, scene, supposed = pod.metadata.namespace, self.scene([(pod, "")]), self._supposed
        if supposed is None or supposed.attempt != attempt:
            supposed = await self._runner.answer(namespace, partial(choices.suppose, pod, attempt, below, scene))
            self._members.clear()
        fleet_outlook = await self._runner.answer(namespace, partial(choices.outlook, pod, supposed, scene))
        self._supposed = supposed
        token = SUPPOSED + secrets.token_hex(12)
        self._members[token] = pod, supposed
        return token if fleet_outlook.nodes else "", fleet_outlook.with_texts(partial(self._pods.redact, pod))

    async def why_not_fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Return why a member does not fit on a node with the pods of `add` and without the pods of `remove`; "" if it fits."""
        pod, supposed = self._member(token)
        placed, added = without(supposed.without_lower(), remove), [self._pods.newest(other) for other in add]
        question = partial(why_not_fits, pod, node, placed, added)
        return self._pods.redact(pod, await self._runner.answer(pod.metadata.namespace, question))

    async def reserve(self, token: str, node: str) -> None:
        """Suppose that a member is placed on a node: it holds its devices, and its victims are gone. Nothing is reserved, nobody evicted."""
        pod, supposed = self._member(token)
        question = partial(choices.place_member, pod, node, supposed, self.scene([(pod, node)]))
        result = await self._runner.answer(pod.metadata.namespace, question)
        if isinstance(result, str):
            raise HttpError(HTTPStatus.CONFLICT, result, "schedule the pod again")
        self._supposed = result

    def release(self, token: str) -> None:
        """Undo the supposed placement of a member and of all members placed after it. A scheduler undoes the last placement first."""
        if token in self._members:
            _, self._supposed = self._members.pop(token)

    def _member(self, token: str) -> tuple[Pod, Supposed]:
        if token not in self._members or self._members[token][1] is not self._supposed:
            raise HttpError(HTTPStatus.GONE, "the token is no longer known", "schedule the pod again")
        return self._members[token]

    async def keep_a_node(self, is_useful: Callable[[Pod, KeptNode], bool]) -> None:
        """Keep a node for the next starved pod. `is_useful` returns whether the node that is kept for a pod still helps it."""
        nominations = self._pods.nominations
        pod = nominations.next_starved_pod(is_useful)
        if pod is None:
            return
        question = partial(choices.fewest, pod, self.scene([(pod, "")]))
        candidate = await self._runner.search(pod.metadata.namespace, question, KEEP_SECONDS)
        if candidate is None:
            nominations.give_up(pod)
        else:
            nominations.keep_node(pod, candidate.node, (*pods_of(candidate.staying), *candidate.leaving))

    def scene(self, places: Places) -> Scene:
        """Return the facts for a choice of victims."""
        state, pods = self._ledger.state, dict(self._knowledge.pods.objects)
        group = {pod.metadata.uid for pod, _ in places}
        return Scene(
            stock=self._knowledge.stock,
            pods=pods,
            evicted={eviction.uid: eviction.at for eviction in self._evicted},
            reserved={reservation.pod: reservation.node for reservation in state.unreleased()},
            budgets=self._current_budgets(),
            groups={group.metadata.key: group for group in self._knowledge.groups.objects.values()},
            rivals=self._pods.nominations.rivals(places[0][0], state, group),
            quota_lines=self._quotas.lines_among(pods),
            most_pods=self._pods.rules.most_pods,
            occupied=self._ledger.reserved_nodes(),
        )

    def _current_budgets(self) -> list[PodDisruptionBudget]:
        """Return the budgets with their allowed disruptions reduced by the evictions that their status does not count yet."""
        budgets: list[PodDisruptionBudget] = []
        for budget in self._knowledge.budgets.objects.values():
            key, version = budget.metadata.key, budget.metadata.resource_version
            uncounted = sum(eviction.versions.get(key) == version for eviction in self._evicted)
            left = max(0, budget.status.disruptions_allowed - uncounted)
            status = replace(budget.status, disruptions_allowed=left)
            budgets.append(replace(budget, status=status) if uncounted else budget)
        return budgets

    async def _evict_all(self, chosen: Victims, places: Places) -> Preemption:
        """Evict the victims unit by unit, until the pods fit or the choice no longer suffices."""
        pod = places[0][0]
        nominations = self._pods.nominations
        evicted: list[Pod] = []
        evicted_units: tuple[Unit, ...] = ()
        # The pods that are being deleted are awaited, too: these nodes may be able to use the devices that they free.
        leaving = [
            leaving_pod for leaving_pod in self.scene(places).leaving_pods() if priority(leaving_pod) < priority(pod)
        ]
        for member, node in places:
            nominations.nominate(member, node, (*chosen.pods, *leaving))
        for unit in chosen.units:
            question = partial(choices.still_suffice, places, (chosen.units, evicted_units), self.scene(places))
            (still_suffices, already_fits), give_way = await self._runner.search(
                pod.metadata.namespace, question, LOOK_SECONDS
            )
            for refused_pod in give_way:
                nominations.give_way(refused_pod)
            if not still_suffices:
                for member, _ in places:
                    nominations.give_up(member)
                return Preemption(message="devices changed during preemption; no other pod is evicted")
            if already_fits:
                break
            evicted_units += (unit,)
            why = f"preempted by {name_pods(unit.pods[0], (pod,))}, which has a higher priority"
            try:
                evicted += await self._evict_unit(unit, why)
            except ApiError as error:
                problem = f"{name_pods(pod, unit.pods)} could not be evicted: {error.message}"
                raise HttpError(
                    HTTPStatus.SERVICE_UNAVAILABLE, problem, "check the allocator's rights, or wait"
                ) from None
        message = (
            f"evicted {name_pods(pod, evicted)}" if evicted else "no pod is evicted: devices are being freed already"
        )
        return Preemption(tuple(places), tuple(evicted), message)

    async def finish(self) -> None:
        """Evict the rest of each group whose eviction began, but stopped because a write failed or the leader crashed."""
        groups = {
            group.metadata.key: group for group in self._knowledge.groups.objects.values() if group.is_disrupted_whole
        }
        if not groups:
            return
        async with self._one_at_a_time:
            leaving = {eviction.uid for eviction in self._evicted}
            staying = [
                pod
                for pod in self._knowledge.pods.objects.values()
                if pod_group_key(pod) in groups
                and not pod.metadata.deletion_timestamp
                and pod.metadata.uid not in leaving
            ]
            for unit in units_of(staying, groups):
                marks = [mark for pod in unit.pods for mark in pod.status.conditions if _is_ours(mark)]
                if marks:
                    with suppress(ApiError, HttpError):  # the next tick tries again
                        await self._evict_unit(unit, marks[0].message)

    async def _evict_unit(self, unit: Unit, why: str) -> list[Pod]:
        """Evict the pods of a unit; return those that still existed.

        All pods get the condition before the first of them is deleted, so that `finish` finds the others by it.
        """
        marked = await self._write_all(self._mark, unit.pods, why)
        return await self._write_all(self._delete, marked, why)

    async def _write_all(
        self, write: Callable[[Pod, str], Awaitable[None]], victims: Iterable[Pod], why: str
    ) -> list[Pod]:
        """Write to each pod, also if the write to another fails; return the pods that exist."""

        async def attempt(victim: Pod) -> list[Pod]:
            self._lead.require_lead()
            try:
                await write(victim, why)
            except (NotFound, Conflict):
                self._metrics.evictions.labels("gone").inc()  # another pod may have the name now
                return []
            except ApiError:
                self._metrics.evictions.labels("failed").inc()
                raise
            return [victim]

        existing: list[Pod] = []
        for outcome in await asyncio.gather(*[attempt(victim) for victim in victims], return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            existing += outcome
        return existing

    async def _mark(self, victim: Pod, why: str) -> None:
        meta = victim.metadata
        condition = {"type": TARGET, "status": "True", "reason": REASON, "message": why}
        condition["lastTransitionTime"] = api_timestamp()
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "status": {"conditions": [condition]},
        }
        await self._cluster.patch(PODS, meta.name, Apply(body, MANAGER), meta.namespace, subresource="status")

    async def _delete(self, victim: Pod, why: str) -> None:
        meta = victim.metadata
        await self._cluster.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
        budgets = self._knowledge.budgets.objects.values()
        versions = {
            budget.metadata.key: budget.metadata.resource_version for budget in budgets if protects(budget, victim)
        }
        self._evicted.append(_Evicted(meta.uid, api_timestamp(), versions))
        self._metrics.evictions.labels("evicted").inc()
        logger.info("a pod is evicted", extra={"pod": meta.key, "reason": why})
        await self._ledger.record_event(victim, why)


def _is_ours(condition: Condition) -> bool:
    """Return whether a pod with this condition is being evicted for a pod with a higher priority."""
    return condition.type == TARGET and condition.status == "True" and condition.reason == REASON
