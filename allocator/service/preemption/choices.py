"""Which pods have to go, as functions of a decider and of values. They change nothing; `evictions` carries out what they return.

`allocator.preemption` searches. Here stands what it means that a pod fits once some are gone: devices, quota, and places on the node.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec.structs import replace

from allocator import allocate
from allocator.answer import as_granted
from allocator.decisions import full_nodes, with_pods
from allocator.one_node import Options
from allocator.pods import barriers, requests
from allocator.preemption import (
    Enough,
    PotentialVictims,
    Victims,
    claims_in_reach,
    fewest_to_end,
    holders_below,
    make_room,
    make_room_on,
    priority,
    without_pods,
    without_unused_claims,
)
from allocator.service.questions import nominated_in_shared_pools
from dra import step_limits
from dra.budget import Budget
from dra.objects import claim_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from allocator.decisions import Decider
    from allocator.preemption import Holders
    from allocator.service.quota.quotas import QuotaLines
    from allocator.strategies import Placement
    from dra.objects import Pod, PodDisruptionBudget, ResourceClaim
    from dra.stock import Stock

    # What a pod's claims get on a node of a stock; None if they cannot have it.
    Serve = Callable[[Pod, str, Stock, Options], Sequence[ResourceClaim] | None]


# Pods, each with the node that it is to have: one pod, or the members of a group in the order in which they are placed.
Places: TypeAlias = "Sequence[tuple[Pod, str]]"


class Scene(NamedTuple):
    """What a choice rests on."""

    stock: Stock
    pods: Mapping[tuple[str, str], Pod]  # by namespace and name, as they were seen
    evicted: Mapping[str, str]  # when pods were evicted, by uid: they may still be seen as they were
    reserved: Mapping[str, str]  # nodes by uid of the pods that have a reservation, and may be on their way there
    budgets: Sequence[PodDisruptionBudget]
    rivals: Mapping[str, Sequence[Pod]]  # nominated pods that are as important, by node
    placements: Mapping[str, Placement]  # by uid of the pods that are asked about
    quota_lines: QuotaLines
    most_pods: int  # on a node
    occupied: Sequence[tuple[str, str]]  # pods by uid, with the nodes on which they count

    def find(self, namespace: str, name: str) -> Pod | None:
        """Find a pod as it was seen."""
        return self.pods.get((namespace, name))

    def current_pods(self) -> Iterator[Pod]:
        """Walk through the pods as they are, though our copy may not have heard of it; one that is being bound is on its node."""
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
        """Return the stock in which pods that are gone hold nothing."""
        return without_unused_claims(self.stock, self.stock.claims, self.find)

    def holders_below(self, pod: Pod, stock: Stock) -> Holders:
        """Find the pods that could be evicted for a pod."""
        others = [other for other in self.current_pods() if claim_names(other)]
        return holders_below(pod, others, stock, self.budgets)


class Choice(NamedTuple):
    """What would let pods fit: victims, or pods that are leaving already; neither if nothing would."""

    victims: Victims | None = None
    leaving: tuple[Pod, ...] = ()
    give_way: tuple[Pod, ...] = ()  # pods that were refused for the sake of nominated ones


def choose(places: Places, awaited: Places, scene: Scene, decider: Decider, *, together: bool) -> Choice:
    """Choose the victims at one of some places, or at all of them together. `awaited` are the pods that have a node nominated already."""
    pod = places[0][0]
    stock = scene.without_ended()
    holders = scene.holders_below(pod, stock)
    nodes = tuple(node for _, node in awaited if node in stock.nodes)
    if nodes and (leaving := holders.potential_victims(nodes, stock).leaving):
        return Choice(leaving=leaving)
    existing = [node for _, node in places if node in stock.nodes]
    if not existing:
        return Choice()
    trial = Trial(places, stock, scene, decider, together=together)
    victims = make_room(existing, holders, stock, trial.suffices, together=together)
    return Choice(victims, give_way=tuple(trial.give_way.values()))


def fewest(pod: Pod, scene: Scene, decider: Decider) -> PotentialVictims | None:
    """Choose the node on which the fewest pods, none more important, have to end by themselves for a pod to fit."""
    more = replace(pod, spec=replace(pod.spec, priority=priority(pod) + 1))  # than its equals
    stock = scene.without_ended()
    holders = scene.holders_below(more, stock)
    may_run = barriers(pod, [name for name in requests(pod) if "/" in name])
    trial = Trial([(pod, node) for node in stock.nodes], stock, scene, decider)

    def suffices(victims: Victims) -> bool:
        return next(may_run(stock.nodes[victims.node], {}), None) is None and trial.suffices(victims)

    return fewest_to_end(stock.nodes, holders, stock, suffices)


def predict(
    pod: Pod, claims: Sequence[ResourceClaim], nodes: Iterable[str], scene: Scene, decider: Decider
) -> Victims | None:
    """Name the victims for a pod that may not exist yet, with claims that have no devices."""
    stock = scene.stock
    existing = [node for node in nodes if node in stock.nodes]

    def serve(_: Pod, node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
        answer = allocate(after, node, claims, options=options)
        return as_granted(claims, answer) if answer.feasible else None

    if not existing:
        return None
    trial = Trial([(pod, node) for node in existing], stock, scene, decider, serve)
    return make_room(existing, scene.holders_below(pod, stock), stock, trial.suffices)


def still_suffice(
    places: Places, choices: Sequence[Sequence[Pod]], scene: Scene, decider: Decider
) -> tuple[list[bool], tuple[Pod, ...]]:
    """Say by what is known now which of some choices do, beside the pods that are leaving; and which pods give way."""
    nodes = tuple(dict.fromkeys(node for _, node in places))
    if any(node not in scene.stock.nodes for node in nodes):
        return [False] * len(choices), ()
    claims: set[str] = set()
    for node in nodes:
        claims.update(claims_in_reach(node, scene.stock))
    stock = without_unused_claims(scene.stock, claims, scene.find)
    holders = holders_below(places[0][0], scene.leaving_pods(), stock)
    leaving = holders.potential_victims(nodes, stock).leaving
    trial = Trial(places, stock, scene, decider, together=True)
    found: list[bool] = []
    with suppress(Enough):
        found += [trial.suffices(Victims(nodes[0], (*choice, *leaving))) for choice in choices]
    return found or [False] * len(choices), tuple(trial.give_way.values())


def stock_and_preemptable(pod: Pod, scene: Scene) -> tuple[Stock, Holders]:
    """Return the stock once those are gone that leave already, and the pods that could be made to go for a pod."""
    stock = scene.without_ended()
    holders = scene.holders_below(pod, stock)
    leaving = [pod for pod in holders.pods() if pod.metadata.deletion_timestamp]
    return without_pods(stock, leaving), holders


def stock_with_room(place: tuple[Pod, str], stock: Stock, holders: Holders, scene: Scene, decider: Decider) -> Stock:
    """Return the stock without those that have to go for a pod to fit on a node; as it is if that would not do."""
    trial = Trial([place], stock, scene, decider)
    try:
        found = make_room_on(holders.potential_victims((place[1],), stock), holders, trial.suffices)
    except Enough:
        return stock
    return stock if found is None else without_pods(stock, found.pods)


class Trial:
    """Tries whether pods fit once some are gone, one at the place asked or all `together`."""

    def __init__(
        self,
        places: Places,
        stock: Stock,
        scene: Scene,
        decider: Decider,
        serve: Serve | None = None,
        *,
        together: bool = False,
    ) -> None:
        self._places = places
        self._stock = stock
        self._scene = scene
        self._decider = decider
        self._serve = serve or self._serve_known
        self._together = together
        pods = {one.metadata.uid for one, _ in places}
        budget = Budget(step_limits.PREEMPTION * len(pods), decider.is_impatient)
        self._options = Options(steps=step_limits.PREEMPTION_SEARCH, budget=budget)
        self._nominated_elsewhere = nominated_in_shared_pools(scene.rivals, scene.stock)
        self.give_way: dict[str, Pod] = {}  # by uid

    def suffices(self, victims: Victims) -> bool:
        """Say whether pods fit; raise Enough when the caller is impatient."""
        if self._decider.is_impatient():
            raise Enough
        scene = self._scene
        pod = self._places[0][0]
        chosen = self._places if self._together else [(pod, victims.node)]
        after = without_pods(self._stock, victims.pods)
        nodes = dict.fromkeys(node for _, node in chosen)
        others = self._nominated_elsewhere | {node: scene.rivals.get(node, ()) for node in nodes}
        for node, ahead in others.items():
            after = with_pods(after, node, ahead, self._decider.options())
        leaving = {one.metadata.uid for one in (pod, *victims.pods)}
        full = full_nodes(scene.occupied, scene.most_pods, leaving)
        for one, node in chosen:
            given = None if node in full else self._serve(one, node, after, self._options)
            if given is None:
                if any(others.values()):
                    self.give_way[one.metadata.uid] = one
                return False
            if any(line.exceeded for line in scene.quota_lines(one, given, after)):
                return False
            after = after.with_all(given)
        return True

    def _serve_known(self, pod: Pod, node: str, after: Stock, options: Options) -> Sequence[ResourceClaim] | None:
        placement = self._scene.placements[pod.metadata.uid]
        serving = self._decider.serve(pod, node, after, placement, uncached=options)
        return None if isinstance(serving, str) else serving.allocated_claims()
