"""Choose the victims of a preemption. These functions change nothing; `evictions` evicts the pods that they return.

`allocator.preemption` searches for sets of victims. This module tests whether the pods fit once such a set is gone: whether there are
enough devices, and whether quotas and the limit of pods on a node allow it. It also places the members of a PodGroup, one after another, as
if all pods of lower priority were gone.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from allocator.decisions import FleetOutlook, Outlook, Placed, full_nodes, place
from allocator.one_node import SearchOptions
from allocator.pods import barriers, requests
from allocator.preemption import (
    Enough,
    Holders,
    PotentialVictims,
    Victims,
    claims_in_reach,
    fewest_to_end,
    holders_below,
    make_room,
    make_room_on,
    pods_of,
    priority,
    without_pods,
    without_unused_claims,
)
from allocator.service.questions import each_on, nominated_in_shared_pools, why_not_fits, without
from dra import step_limits
from dra.budget import Budget
from dra.objects import claim_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from allocator.decisions import Decider
    from allocator.preemption import Choice
    from allocator.service.quota.quotas import QuotaLines
    from dra.objects import Pod, PodDisruptionBudget, PodGroup
    from dra.stock import Stock


MAX_SCORE = 100  # the highest score of the scheduler framework
# Pairs of a pod and a node: one pod with each of its candidate nodes, or the members of a group in the order in which they are placed.
Places: TypeAlias = "Sequence[tuple[Pod, str]]"


class Scene(NamedTuple):
    """The facts on which a choice of victims is based."""

    stock: Stock
    pods: Mapping[tuple[str, str], Pod]  # by namespace and name, as they were seen
    evicted: Mapping[str, str]  # the time of eviction by pod uid: `pods` may not show the deletion yet
    reserved: Mapping[str, str]  # the node of each reservation by pod uid: `pods` may not show the binding yet
    budgets: Sequence[PodDisruptionBudget]
    groups: Mapping[str, PodGroup]  # by namespace/name
    rivals: Mapping[str, Sequence[Pod]]  # nominated pods of the same or a higher priority, by node
    quota_lines: QuotaLines
    most_pods: int  # on a node
    occupied: Sequence[tuple[str, str]]  # uid and node of each pod that counts towards `most_pods`

    def current_pods(self) -> Iterator[Pod]:
        """Yield the pods, corrected by what this process did itself: evicted pods are being deleted, and reserved pods have their node."""
        for pod in self.pods.values():
            meta = pod.metadata
            since = self.evicted.get(meta.uid)
            if not pod.spec.node_name and meta.uid in self.reserved:
                pod = replace(pod, spec=replace(pod.spec, node_name=self.reserved[meta.uid]))  # noqa: PLW2901
            if since and not meta.deletion_timestamp:
                yield replace(pod, metadata=replace(meta, deletion_timestamp=since))
            else:
                yield pod

    def leaving_pods(self) -> list[Pod]:
        """List the pods that are being deleted."""
        return [pod for pod in self.current_pods() if pod.metadata.deletion_timestamp]

    def without_ended(self) -> Stock:
        """Return the stock as if deleted and finished pods held nothing."""
        return without_unused_claims(self.stock, self.stock.claims, self.pods)

    def holders_below(self, pod: Pod, stock: Stock) -> Holders:
        """Return the pods that could be evicted for a pod."""
        others = [other for other in self.current_pods() if claim_names(other) or other.spec.scheduling_group]
        return holders_below(pod, others, stock, self.budgets, self.groups)


class VictimChoice(NamedTuple):
    """The victims, or the pods that are already being deleted and must be awaited. Both are empty if no eviction would help."""

    victims: Victims | None = None
    leaving: tuple[Pod, ...] = ()
    give_way: tuple[Pod, ...] = ()  # pods that do not fit because nominated pods get the devices


def choose(places: Places, awaited: Places, scene: Scene, decider: Decider, *, together: bool) -> VictimChoice:
    """Choose the victims on one of the nodes, or on all nodes `together`. `awaited` are the pods that already have a nominated node."""
    pod = places[0][0]
    stock = scene.without_ended()
    holders = scene.holders_below(pod, stock)
    nodes = tuple(node for _, node in awaited if node in stock.nodes)
    if nodes and (leaving := holders.potential_victims(nodes, stock).leaving):
        return VictimChoice(leaving=leaving)
    existing = [node for _, node in places if node in stock.nodes]
    if not existing:
        return VictimChoice()
    trial = Trial(places, Placed(stock), scene, decider, together=together)
    victims = make_room(existing, holders, stock, trial.suffices, together=together)
    return VictimChoice(victims, give_way=tuple(trial.give_way.values()))


def fewest(pod: Pod, scene: Scene, decider: Decider) -> PotentialVictims | None:
    """Among the nodes where a pod fits once all pods of the same or a lower priority end, return the node with the fewest of these pods.

    Return None if there is no such node. Also return None if the end of one pod is enough there, because then no node has to be kept.
    """
    # So that pods of its own priority count too.
    raised = replace(pod, spec=replace(pod.spec, priority=priority(pod) + 1))
    stock = scene.without_ended()
    holders = scene._replace(groups={}).holders_below(raised, stock)  # the pods of a group need not end together
    may_run = barriers(pod, [name for name in requests(pod) if "/" in name])
    trial = Trial([(pod, node) for node in stock.nodes], Placed(stock), scene, decider)

    def suffices(victims: Victims) -> bool:
        return next(may_run(stock.nodes[victims.node], {}), None) is None and trial.suffices(victims)

    return fewest_to_end(stock.nodes, holders, stock, suffices)


def still_suffice(
    places: Places, choices: Sequence[Choice], scene: Scene, decider: Decider
) -> tuple[list[bool], tuple[Pod, ...]]:
    """Check choices of victims against the current state.

    For each choice, return whether the pods fit once its victims and the pods that are being deleted are gone. Also return the pods that
    give way to nominated pods.
    """
    nodes = tuple(dict.fromkeys(node for _, node in places))
    if any(node not in scene.stock.nodes for node in nodes):
        return [False] * len(choices), ()
    claims: set[str] = set()
    for node in nodes:
        claims.update(claims_in_reach(node, scene.stock))
    stock = without_unused_claims(scene.stock, claims, scene.pods)
    holders = holders_below(places[0][0], scene.leaving_pods(), stock)
    leaving = holders.potential_victims(nodes, stock).leaving
    trial = Trial(places, Placed(stock), scene, decider, together=True)
    sufficient: list[bool] = []
    with suppress(Enough):
        sufficient += [trial.suffices(Victims(nodes[0], choice, leaving)) for choice in choices]
    return sufficient or [False] * len(choices), tuple(trial.give_way.values())


@dataclass
class Trial:
    """Checks whether pods fit once certain victims are gone: one pod on the victims' node, or all pods `together`."""

    places: Places
    placed: Placed
    scene: Scene
    decider: Decider
    together: bool = False

    def __post_init__(self) -> None:
        pods = {pod.metadata.uid for pod, _ in self.places}
        budget = Budget(step_limits.PREEMPTION * len(pods), self.decider.is_abandoned)
        self.options = SearchOptions(steps=step_limits.PREEMPTION_SEARCH, budget=budget)
        self.nominated_elsewhere = nominated_in_shared_pools(self.scene.rivals, self.scene.stock)
        self.give_way: dict[str, Pod] = {}  # by uid

    def suffices(self, victims: Victims) -> bool:
        """Return whether the pods fit once these victims are gone; raise Enough when the time is over."""
        if self.decider.is_abandoned():
            raise Enough
        scene = self.scene
        pod = self.places[0][0]
        chosen = self.places if self.together else [(pod, victims.node)]
        nodes = dict.fromkeys(node for _, node in chosen)
        nominated = self.nominated_elsewhere | {node: scene.rivals.get(node, ()) for node in nodes}
        beside = place(each_on(nominated), without(self.placed, victims.pods), self.decider.options())
        leaving = {gone.metadata.uid for gone in (pod, *victims.pods)}
        full = full_nodes(scene.occupied, scene.most_pods, leaving)
        after = place([chosen], beside, self.options)
        if after.problems[-1] or not full.keys().isdisjoint(nodes):
            if any(nominated.values()):
                self.give_way |= {member.metadata.uid: member for member, _ in chosen}
            return False
        stock = beside.stock
        for member, _ in chosen:
            allocated = after.granted(member)
            if any(line.exceeded for line in scene.quota_lines(member, allocated, stock)):
                return False
            stock = stock.with_all(allocated)
        return True


class Supposed(NamedTuple):
    """The members of a group that are placed so far, in a stock without their victims, and the pods of lower priority.

    A scheduler that cannot place a group simulates the placement once more, with all of its plugins but without the pods of lower priority.
    The result is a node for each member. Victims are then chosen on these nodes.
    """

    attempt: str
    placed: Placed
    holders: Holders
    removed: tuple[Pod, ...]

    def without_lower(self) -> Placed:
        """Return the stock without all pods of lower priority."""
        return without(self.placed, self.removed)


def suppose(pod: Pod, attempt: str, below: int, scene: Scene, decider: Decider) -> Supposed:
    """Return the state in which no member is placed, with the pods that have a lower priority than the first member and than `below`."""
    stock = scene.without_ended()
    holders = scene.holders_below(pod, stock)
    units = holders.units()
    stock = without_pods(stock, [lower for lower in pods_of(units) if lower.metadata.deletion_timestamp])
    nominated = each_on(nominated_in_shared_pools(scene.rivals, scene.stock))
    placed = Placed(place(nominated, Placed(stock), decider.options()).stock)
    return Supposed(attempt, placed, holders, pods_of([unit for unit in units if unit.priority < below]))


def outlook(pod: Pod, supposed: Supposed, scene: Scene, decider: Decider) -> FleetOutlook:
    """Return the nodes that could serve the next member. Nodes that need no further victim score highest."""
    leaving = {gone.metadata.uid for gone in (pod, *supposed.removed)}
    full = full_nodes(scene.occupied, scene.most_pods, leaving)

    def fitting(placed: Placed) -> tuple[FleetOutlook, list[str]]:
        fleet_outlook = decider.outlook(pod, placed.stock, excluded_nodes=full)
        # On nodes with earlier members, these may get other devices.
        others = sorted(placed.claims.keys() - fleet_outlook.nodes.keys() - full.keys())
        return fleet_outlook, [
            *fleet_outlook.nodes,
            *[node for node in others if not why_not_fits(pod, node, placed, (), decider)],
        ]

    fleet_outlook, nodes = fitting(supposed.without_lower())
    _, now_fitting = fitting(supposed.placed)
    scores = {node: MAX_SCORE if node in now_fitting else 0 for node in nodes}
    return replace(fleet_outlook, outlook=Outlook.FITS if nodes else fleet_outlook.outlook, nodes=scores)


def place_member(pod: Pod, node: str, supposed: Supposed, scene: Scene, decider: Decider) -> Supposed | str:
    """Place a member on a node, without its victims there; return why it does not fit if it does not."""
    placed, holders = supposed.placed, supposed.holders
    trial = Trial([(pod, node)], placed, scene, decider)
    with suppress(Enough):
        victims = make_room_on(holders.potential_victims((node,), placed.stock), holders, trial.suffices)
        placed = without(placed, victims.pods if victims is not None else ())
    placed = place([[(pod, node)]], placed, decider.options())
    return placed.problems[-1] or supposed._replace(placed=placed)
