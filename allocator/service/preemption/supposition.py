"""Where the members of a PodGroup would be placed if all pods of lower priority were gone. Nothing is reserved and no pod is evicted.

A scheduler that cannot place a group simulates the placement once more, with all of its plugins but without the pods of lower priority. The
result is a node for each member. Victims are then chosen on these nodes. The scheduler places one group at a time, so only the latest
simulation (a supposition) is stored.
"""

from __future__ import annotations

import secrets
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.decisions import full_nodes, with_pods
from allocator.preemption import Holders, pods_of, without_pods
from allocator.service import questions
from allocator.service.app import HttpError
from allocator.service.part import Part
from allocator.service.preemption import choices
from allocator.service.questions import Others, nominated_in_shared_pools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.decisions import Decider, FleetOutlook, Serving
    from allocator.service.part import Shared
    from allocator.service.preemption.choices import Scene
    from allocator.service.preemption.evictions import Evictions
    from allocator.strategies import Placement
    from dra.objects import Pod
    from dra.stock import Stock

SUPPOSED = "supposed-"
MAX_SCORE = 100  # the highest score of the scheduler framework


class Supposed(NamedTuple):
    """Two stocks with the members placed so far, and the pods of lower priority."""

    without_lower: Stock  # without all pods of lower priority
    without_victims: Stock  # with the pods of lower priority, except the victims of the members placed so far
    holders: Holders
    removed: tuple[Pod, ...] = ()


class Supposition(Part):
    """The simulated placement of one group."""

    def __init__(self, shared: Shared, evictions: Evictions) -> None:
        super().__init__(shared)
        self._evictions = evictions
        self._name = ""
        self._supposed = Supposed(shared.knowledge.stock, shared.knowledge.stock, Holders({}, {}, {}))
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
        others = Others([self._pods.newest(added) for added in add], tuple(remove))
        question = partial(questions.why_not_fits_beside, pod, node, self._supposed.without_lower, others)
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
        now, holders = choices.stock_and_preemptable(pod, scene)
        for node, others in nominated_in_shared_pools(scene.rivals, scene.stock).items():
            now = with_pods(now, node, others, decider.options())
        removed = pods_of([unit for unit in holders.units() if unit.priority < below])
        supposed = Supposed(without_pods(now, removed), now, holders, removed)
    leaving = {gone.metadata.uid for gone in (pod, *supposed.removed)}
    full = full_nodes(scene.occupied, scene.most_pods, leaving)
    placement = scene.placements[pod.metadata.uid]
    fleet_outlook = decider.outlook(pod, supposed.without_lower, placement, full)
    now_fits = decider.outlook(pod, supposed.without_victims, placement, full).nodes
    return supposed, replace(
        fleet_outlook, nodes={node: MAX_SCORE if node in now_fits else 0 for node in fleet_outlook.nodes}
    )


def _place(pod: Pod, node: str, supposed: Supposed, scene: Scene, decider: Decider) -> Supposed | str:
    placement = scene.placements[pod.metadata.uid]
    now = supposed.without_victims
    serving = _serve(pod, node, now, placement, decider)
    if isinstance(serving, str):
        now = choices.stock_with_room((pod, node), now, supposed.holders, scene, decider)
        serving = _serve(pod, node, now, placement, decider)
    if isinstance(serving, str):
        return serving
    allocated = serving.allocated_claims()
    return supposed._replace(
        without_lower=supposed.without_lower.with_all(allocated), without_victims=now.with_all(allocated)
    )


def _serve(pod: Pod, node: str, stock: Stock, placement: Placement, decider: Decider) -> Serving | str:
    return decider.serve(pod, node, stock, placement, uncached=decider.options())
