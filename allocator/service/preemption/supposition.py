"""Where the members of a PodGroup would be placed if all pods of lower priority were gone. Nothing is reserved and no pod is evicted.

A scheduler that cannot place a group simulates the placement once more, with all of its plugins but without the pods of lower priority. The
result is a node for each member. Victims are then chosen on these nodes. The scheduler places one group at a time, so only the latest
simulation (a supposition) is stored.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import FleetOutlook, Outlook, Placed, full_nodes, place
from allocator.preemption import Enough, Holders, make_room_on, pods_of, without_pods
from allocator.service.app import HttpError
from allocator.service.part import Part
from allocator.service.preemption.choices import Trial
from allocator.service.questions import each_on, nominated_in_shared_pools, why_not_fits, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from allocator.decisions import Decider
    from allocator.service.part import Shared
    from allocator.service.preemption.choices import Scene
    from allocator.service.preemption.evictions import Evictions
    from dra.objects import Pod

SUPPOSED = "supposed-"
MAX_SCORE = 100  # the highest score of the scheduler framework


class Supposed(NamedTuple):
    """The members placed so far, in a stock without their victims, and the pods of lower priority."""

    placed: Placed
    holders: Holders = Holders({}, {}, {})
    removed: tuple[Pod, ...] = ()

    def without_lower(self) -> Placed:
        """Return the stock without all pods of lower priority."""
        return without(self.placed, self.removed)


class Supposition(Part):
    """The simulated placement of one group."""

    def __init__(self, shared: Shared, evictions: Evictions) -> None:
        super().__init__(shared)
        self._evictions = evictions
        self._name = ""
        self._supposed = Supposed(Placed(shared.knowledge.stock))
        self._last_attempt: tuple[str, Pod] | None = None  # the member of the last outlook, with its token
        self._before: dict[str, Supposed] = {}  # the state before a member was placed, by the member's token

    async def outlook(self, pod: Pod, name: str, below: int) -> tuple[str, FleetOutlook]:
        """Return a token for the next member, and the nodes that could serve it. Nodes that need no further victim score highest."""
        self._lead.require_ready()
        pod = self._pods.newest(pod)
        scene = self._evictions.scene([(pod, "")])
        supposed = self._supposed if name == self._name else None
        question = partial(_outlook, pod, supposed, below, scene)
        after, fleet_outlook = await self._runner.answer(pod.metadata.namespace, question)
        if name != self._name:
            self._name, self._before = name, {}
        self._supposed = after
        token = SUPPOSED + secrets.token_hex(12)
        self._last_attempt = token, pod
        return token if fleet_outlook.nodes else "", fleet_outlook.with_texts(partial(self._pods.redact, pod))

    async def why_not_fits(self, token: str, node: str, add: Iterable[Pod], remove: Iterable[Pod]) -> str:
        """Return why a member does not fit on a node with the pods of `add` and without the pods of `remove`; "" if it fits."""
        pod = self._pod_of(token)
        placed = without(self._supposed.without_lower(), remove)
        question = partial(why_not_fits, pod, node, placed, [self._pods.newest(added) for added in add])
        return self._pods.redact(pod, await self._runner.answer(pod.metadata.namespace, question))

    async def reserve(self, token: str, node: str) -> None:
        """Place a member on a node in the supposition: the member holds its devices, and its victims are gone."""
        pod = self._pod_of(token)
        before = self._supposed
        question = partial(_place, pod, node, before, self._evictions.scene([(pod, node)]))
        result = await self._runner.answer(pod.metadata.namespace, question)
        if isinstance(result, str):
            raise HttpError(HTTPStatus.CONFLICT, result, "schedule the pod again")
        self._before[token] = before
        self._supposed = result

    def release(self, token: str) -> None:
        """Undo the placement of a member and of all members placed after it. A scheduler undoes the last placement first."""
        if (before := self._before.pop(token, None)) is not None:
            self._supposed = before

    def _pod_of(self, token: str) -> Pod:
        if self._last_attempt is None or self._last_attempt[0] != token:
            raise HttpError(HTTPStatus.GONE, "the token is no longer known", "schedule the pod again")
        return self._last_attempt[1]


def _outlook(
    pod: Pod, supposed: Supposed | None, below: int, scene: Scene, decider: Decider
) -> tuple[Supposed, FleetOutlook]:
    if supposed is None:
        stock = scene.without_ended()
        holders = scene.holders_below(pod, stock)
        units = holders.units()
        stock = without_pods(stock, [lower for lower in pods_of(units) if lower.metadata.deletion_timestamp])
        nominated = each_on(nominated_in_shared_pools(scene.rivals, scene.stock))
        now = Placed(place(nominated, Placed(stock), decider.options()).stock)
        supposed = Supposed(now, holders, pods_of([unit for unit in units if unit.priority < below]))
    leaving = {gone.metadata.uid for gone in (pod, *supposed.removed)}
    full = full_nodes(scene.occupied, scene.most_pods, leaving)
    fleet_outlook, nodes = _fitting(pod, supposed.without_lower(), full, decider)
    _, now_fitting = _fitting(pod, supposed.placed, full, decider)
    outlook = Outlook.FITS if nodes else fleet_outlook.outlook
    scores = {node: MAX_SCORE if node in now_fitting else 0 for node in nodes}
    return supposed, replace(fleet_outlook, outlook=outlook, nodes=scores)


def _fitting(pod: Pod, placed: Placed, full: Mapping[str, str], decider: Decider) -> tuple[FleetOutlook, list[str]]:
    """Return the nodes where a member fits. On nodes with earlier members, these may get other devices."""
    fleet_outlook = decider.outlook(pod, placed.stock, excluded_nodes=full)
    others = sorted(placed.claims.keys() - fleet_outlook.nodes.keys() - full.keys())
    fitting = [node for node in others if not why_not_fits(pod, node, placed, (), decider)]
    return fleet_outlook, [*fleet_outlook.nodes, *fitting]


def _place(pod: Pod, node: str, supposed: Supposed, scene: Scene, decider: Decider) -> Supposed | str:
    placed, holders = supposed.placed, supposed.holders
    if why_not_fits(pod, node, placed, (), decider):
        trial = Trial([(pod, node)], placed, scene, decider)
        with suppress(Enough):
            victims = make_room_on(holders.potential_victims((node,), placed.stock), holders, trial.suffices)
            placed = without(placed, victims.pods if victims is not None else ())
    placed = place([[(pod, node)]], placed, decider.options())
    return placed.problems[-1] or supposed._replace(placed=placed)
