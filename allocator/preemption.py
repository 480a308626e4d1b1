"""Preemption: the lower-priority pods to evict so that a pod fits, with the least disruption.

The caller passes a function, `suffices`, which returns whether the pod fits once certain victims have released everything that they hold:
devices, shares, counters, quota. So no victim is named for a pod that would still not fit. `suffices` raises `Enough` to end the search;
the result is then the best choice so far. A set of victims disrupts less than another if it

1. violates fewer PodDisruptionBudgets,
2. has a lower highest priority,
3. has fewer pods,
4. or has younger pods. An earlier criterion outweighs all later ones.

The search adds and removes units. A unit is one pod, or all running pods of a PodGroup whose disruptionMode is All, because such a group is
evicted whole or not at all. On each node, all lower-priority units are victims at first. They are then reprieved one after another: first
the units that a budget protects, then the others, both in order of priority, as kube-scheduler does (pkg/scheduler/framework/preemption).
Then less disruptive sets are tried, the least disruptive first, up to a limit. If a set of victims is not enough, no subset is enough, so
subsets are not tried.
"""

from __future__ import annotations

from contextlib import suppress
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from dra.errors import NodeSelectorError
from dra.objects import (
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaimStatus,
    claim_keys,
    pod_group_key,
    protects,
    results_of,
)
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dra.objects import ResourceClaim, ResourceClaimConsumerReference
    from dra.stock import Stock

NEVER = "Never"
MAX_NODES = 100  # candidate nodes compared; kube-scheduler compares at least this many
MAX_TRIALS = 512  # less disruptive sets that are tried on one node; nine pods have 512 sets

# Each digit becomes nine minus the digit, so the timestamp of a younger pod becomes the smaller string. Timestamps have a fixed width.
_REVERSED = str.maketrans("0123456789", "9876543210", "-:.TZ")
Choice: TypeAlias = "tuple[Unit, ...]"
Suffices: TypeAlias = "Callable[[Victims], bool]"  # whether the pod fits once these victims are gone
Disruption: TypeAlias = tuple[int, int, int, tuple[str, ...]]
_Guards = tuple[PodDisruptionBudget, ...]


class Unit(msgspec.Struct, frozen=True):
    """Pods that are evicted together or not at all, and their priority, which is that of their PodGroup if they have one."""

    pods: tuple[Pod, ...]
    priority: int

    @property
    def importance(self) -> tuple[int, bool, int, str, str]:
        """The sort key: the highest priority comes first, then PodGroups, the largest unit, and the oldest pod."""
        oldest = min(self.pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.uid)).metadata
        in_group = self.pods[0].spec.scheduling_group is not None
        return -self.priority, not in_group, -len(self.pods), oldest.creation_timestamp, oldest.uid


class Victims(msgspec.Struct, frozen=True):
    """The units to evict for a pod to fit on a node, the most important first, and the pods that are already being deleted."""

    node: str
    units: Choice
    leaving: tuple[Pod, ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        return (*pods_of(self.units), *self.leaving)


class Enough(Exception):  # noqa: N818  not an error
    """Raised by `suffices` to end the search with the best choice so far."""


class PotentialVictims(msgspec.Struct, frozen=True):
    """The units that hold devices or resources of a node, the most important first. The pods in `leaving` are already being deleted."""

    node: str
    staying: Choice
    leaving: tuple[Pod, ...]

    @property
    def has_pods(self) -> bool:
        return bool(self.staying or self.leaving)

    def and_leaving(self, choice: Choice) -> Victims:
        """Return this choice together with the pods that are being deleted."""
        return Victims(self.node, choice, self.leaving)


class Holders(msgspec.Struct, frozen=True):
    """The lower-priority units, by the pools of their devices and by node, and the PodDisruptionBudgets that protect their pods."""

    by_pool: dict[PoolId, list[Unit]]
    by_node: dict[str, list[Unit]]
    budgets: dict[str, list[PodDisruptionBudget]]  # by namespace
    _guards: dict[str, _Guards] = {}  # the results of `guards`, by uid of the pod

    def units(self) -> Choice:
        distinct = {unit.pods[0].metadata.uid: unit for units in self.by_node.values() for unit in units}
        return tuple(distinct.values())

    def potential_victims(self, nodes: Sequence[str], stock: Stock) -> PotentialVictims:
        """List the units that hold devices or resources that one of these nodes could use."""
        holding: list[Unit] = []
        pools: set[PoolId] = set()
        for node in nodes:
            holding += self.by_node.get(node, ())
            with suppress(NodeSelectorError):  # no device is allocated on such a node
                pools.update(pool.id for pool in stock.pools(node))
        for id_ in pools:
            holding += self.by_pool.get(id_, ())
        distinct = {unit.pods[0].metadata.uid: unit for unit in holding}
        by_importance = sorted(distinct.values(), key=attrgetter("importance"))
        staying = tuple(unit for unit in by_importance if not unit.pods[0].metadata.deletion_timestamp)
        leaving = tuple(pod for pod in pods_of(by_importance) if pod.metadata.deletion_timestamp)
        return PotentialVictims(nodes[0], staying, leaving)

    def guards(self, pod: Pod) -> _Guards:
        """List the budgets that protect a pod."""
        uid = pod.metadata.uid
        if uid not in self._guards:
            budgets = self.budgets.get(pod.metadata.namespace or "default", ())
            self._guards[uid] = tuple(budget for budget in budgets if protects(budget, pod))
        return self._guards[uid]

    def disruption(self, units: Sequence[Unit]) -> Disruption:
        """Rate the disruption of evicting these units; less is better."""
        pods = pods_of(units)
        highest = max([unit.priority for unit in units], default=-(1 << 31))
        ages = sorted([pod.metadata.creation_timestamp.translate(_REVERSED) for pod in pods], reverse=True)
        return self._violations(pods), highest, len(pods), tuple(ages)

    def _violations(self, pods: Iterable[Pod]) -> int:
        """Count the evictions that violate a budget."""
        allowed_by_budget: dict[str, int] = {}
        for pod in pods:
            for guard in self.guards(pod):
                key = guard.metadata.key
                allowed_by_budget[key] = allowed_by_budget.get(key, guard.status.disruptions_allowed) - 1
        return sum(max(0, -allowed) for allowed in allowed_by_budget.values())

    def protected(self, units: Iterable[Unit]) -> list[Unit]:
        """List the units whose eviction would violate a budget even if no other unit were evicted."""
        return [unit for unit in units if self._violations(unit.pods)]


def priority(pod: Pod) -> int:
    """Return the priority of a pod, 0 by default."""
    return pod.spec.priority or 0


def pods_of(units: Iterable[Unit]) -> tuple[Pod, ...]:
    return tuple([pod for unit in units for pod in unit.pods])


def may_preempt(pod: Pod) -> bool:
    return pod.spec.preemption_policy != NEVER


def holders_below(
    pod: Pod,
    others: Iterable[Pod],
    stock: Stock,
    budgets: Iterable[PodDisruptionBudget] = (),
    groups: Mapping[str, PodGroup] = MappingProxyType({}),
) -> Holders:
    """Find the running units with a lower priority than `pod`, and the pools whose devices they hold.

    `groups` are the PodGroups by namespace/name.
    """
    by_pool: dict[PoolId, list[Unit]] = {}
    by_node: dict[str, list[Unit]] = {}
    for unit in units_of(others, groups):
        if unit.priority >= priority(pod):
            continue
        for node in sorted({member.spec.node_name for member in unit.pods}):
            by_node.setdefault(node, []).append(unit)
        claims = [stock.claims.get(key) for member in unit.pods for key in claim_keys(member)]
        for pool in sorted({(result.driver, result.pool) for claim in claims for result in results_of(claim)}):
            by_pool.setdefault(pool, []).append(unit)
    by_namespace: dict[str, list[PodDisruptionBudget]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget.metadata.namespace or "default", []).append(budget)
    return Holders(by_pool, by_node, by_namespace, {})


def units_of(pods: Iterable[Pod], groups: Mapping[str, PodGroup]) -> Iterator[Unit]:
    """Yield the units of the running pods.

    Pods below a CompositePodGroup are left out, because this object may require that other PodGroups are evicted too.
    """
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        if not pod.spec.node_name or pod.has_ended:
            continue
        group = groups.get(pod_group_key(pod))
        if group is None or pod.metadata.deletion_timestamp:
            yield Unit((pod,), priority(pod))
        elif group.spec.parent_composite_pod_group_name:
            continue
        elif group.is_disrupted_whole:
            members.setdefault(group.metadata.key, []).append(pod)
        else:
            yield Unit((pod,), group.spec.priority or 0)
    for key, together in members.items():
        yield Unit(tuple(together), groups[key].spec.priority or 0)


def make_room(
    nodes: Iterable[str], holders: Holders, stock: Stock, suffices: Suffices, *, together: bool = False
) -> Victims | None:
    """Choose a node and its victims: first find a sufficient set on each node, then less disruptive sets until `suffices` ends the search.

    With `together`, the victims are chosen on all nodes at once, for a group of pods that get one node each. The result then names the
    first of the nodes.
    """
    sufficient: list[tuple[Disruption, Victims, PotentialVictims]] = []
    with suppress(Enough):
        for node_group in [tuple(nodes)] if together else ((node,) for node in nodes):
            potential = holders.potential_victims(node_group, stock)
            victims = make_room_on(potential, holders, suffices)
            if victims is not None:
                cost = holders.disruption(victims.units)
                sufficient.append((cost, victims, potential))
            if len(sufficient) >= MAX_NODES:
                break
    sufficient.sort(key=itemgetter(0))
    if not sufficient:
        return None
    lowest_disruption, chosen, _ = sufficient[0]
    with suppress(Enough):
        for _, _, potential in sufficient if chosen.units else ():
            better = _less_disruptive(potential, holders, lowest_disruption, suffices)
            if better is not None:
                chosen = better
                lowest_disruption = holders.disruption(better.units)
    return chosen


def fewest_to_end(nodes: Iterable[str], holders: Holders, stock: Stock, suffices: Suffices) -> PotentialVictims | None:
    """Find the node on which the pod would fit once all lower-priority pods of that node have ended: the one with the fewest such pods.

    A node with a single lower-priority pod does not count. Return None if no node counts, or if on the node that was found a single pod is
    enough.
    """
    candidates = [holders.potential_victims((node,), stock) for node in nodes]
    candidates.sort(key=lambda candidate: len(candidate.staying))
    with suppress(Enough):
        for candidate in candidates:
            if len(candidate.staying) > 1 and suffices(candidate.and_leaving(candidate.staying)):
                one_is_enough = any(suffices(candidate.and_leaving((unit,))) for unit in candidate.staying)
                return None if one_is_enough else candidate
    return None


def without_pods(stock: Stock, pods: Iterable[Pod]) -> Stock:
    """Return the stock as if these pods were gone: claims that no other pod has reserved are deallocated."""
    leaving: set[str] = set()
    keys: set[str] = set()
    for pod in pods:
        leaving.add(pod.metadata.uid)
        keys.update(claim_keys(pod))
    return _without_claims(stock, sorted(keys), lambda _, consumer: consumer.uid in leaving)


def without_unused_claims(stock: Stock, keys: Iterable[str], pods: Mapping[tuple[str, str], Pod]) -> Stock:
    """Return the stock without the allocations of claims whose pods are all deleted or finished.

    The claim controller deallocates such a claim a moment after its pods end, so nothing needs to be evicted for its devices. The keys of
    `pods` are namespace and name.
    """

    def has_ended(claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> bool:
        pod = pods.get((claim.metadata.namespace, consumer.name))
        # A consumer other than a pod cannot be looked up, and counts as alive.
        return consumer.resource == "pods" and (pod is None or pod.metadata.uid != consumer.uid or pod.has_ended)

    return _without_claims(stock, keys, has_ended)


def _without_claims(
    stock: Stock, keys: Iterable[str], is_gone: Callable[[ResourceClaim, ResourceClaimConsumerReference], bool]
) -> Stock:
    """Return the stock without the allocations of those of these claims all of whose consumers are gone."""
    claims = [stock.claims[key] for key in keys if key in stock.claims]
    freed_claims = [
        replace(claim, status=ResourceClaimStatus())
        for claim in claims
        if claim.status.allocation is not None
        and claim.status.reserved_for
        and all(is_gone(claim, consumer) for consumer in claim.status.reserved_for)
    ]
    return stock.with_all(freed_claims) if freed_claims else stock


def claims_in_reach(node: str, stock: Stock) -> set[str]:
    """Return the keys of the claims that hold devices of the node's pools."""
    return {key for pool in stock.pools(node) for key in stock.results.get(pool.id, ())}


def make_room_on(potential: PotentialVictims, holders: Holders, suffices: Suffices) -> Victims | None:
    """Choose the victims on a node. Return None if the pod would not fit even if all potential victims were gone.

    Every choice includes the pods that are already being deleted; these do not count as disruption.
    """
    staying = potential.staying
    if not suffices(potential.and_leaving(staying)):
        return None
    if not staying or suffices(potential.and_leaving(())):
        return Victims(potential.node, ())
    protected = holders.protected(staying)
    unprotected = [unit for unit in staying if unit not in protected]
    victims = staying
    # Reprieve half of the units at a time. This is faster than one unit at a time, because usually few of many pods have to be evicted. The
    # result is the same.
    waiting = [unprotected, protected]
    while waiting:
        batch = waiting.pop()
        spared = _uids(batch)
        remaining = tuple(unit for unit in victims if spared.isdisjoint(_uids((unit,))))
        if not batch or suffices(potential.and_leaving(remaining)):
            victims = remaining
        elif len(batch) > 1:
            middle = len(batch) // 2
            waiting += [batch[middle:], batch[:middle]]
    return Victims(potential.node, victims)


def _less_disruptive(
    potential: PotentialVictims, holders: Holders, limit: Disruption, suffices: Suffices
) -> Victims | None:
    """Return the least disruptive set of victims that suffices, or None if it would not disrupt less than `limit`.

    After each set, the search tries all sets with one more unit that is less important. Such a set disrupts more, so the first
    sufficient set is the least disruptive.
    """
    staying = potential.staying
    insufficient = _insufficient_sets(potential, holders, suffices)
    waiting: list[tuple[Disruption, tuple[int, ...]]] = [(holders.disruption(()), ())]
    for _ in range(MAX_TRIALS):
        if not waiting:
            return None
        _, positions = heappop(waiting)
        chosen = tuple(staying[index] for index in positions)
        uids = _uids(chosen)
        if not _is_within(uids, insufficient):
            if suffices(potential.and_leaving(chosen)):
                return Victims(potential.node, chosen)
            insufficient.append(uids)
        first = positions[-1] + 1 if positions else 0
        for at in range(first, len(staying)):
            later_uids = _uids(staying[at:])
            if _is_within(uids | later_uids, insufficient):
                break
            extended = (*chosen, staying[at])
            cost = holders.disruption(extended)
            if cost < limit:
                heappush(waiting, (cost, (*positions, at)))
    return None


def _insufficient_sets(potential: PotentialVictims, holders: Holders, suffices: Suffices) -> list[frozenset[str]]:
    """Find large insufficient sets: all units that no budget protects, and all units below each priority."""
    staying = potential.staying
    insufficient: list[frozenset[str]] = [frozenset()]
    protected = holders.protected(staying)
    levels = sorted({unit.priority for unit in staying})
    choices = [tuple(unit for unit in staying if unit not in protected)]
    choices += [tuple(unit for unit in staying if unit.priority < level) for level in levels]
    for choice in choices:
        uids = _uids(choice)
        if _is_within(uids, insufficient):
            continue
        if not suffices(potential.and_leaving(choice)):
            insufficient.append(uids)
    return insufficient


def _uids(units: Iterable[Unit]) -> frozenset[str]:
    return frozenset(pod.metadata.uid for pod in pods_of(units))


def _is_within(uids: frozenset[str], choices: Iterable[frozenset[str]]) -> bool:
    return any(uids <= choice for choice in choices)
