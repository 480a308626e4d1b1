"""Who would have to go so that a pod fits: pods of less priority, and of all choices that do, the one that disrupts least.

Whether a pod fits once others are gone is asked of whoever knows (`Fits`), with everything these others hold given back: devices, shares,
counters, quota. So nobody is named for a pod that still would not fit. A choice disrupts less than another if it

1. evicts fewer pods beyond what PodDisruptionBudgets allow,
2. spares higher priorities: the most important victim is less important,
3. has fewer victims,
4. and has younger ones.

On a node, first everybody goes in thought, then each comes back who can, the protected and the important first, as the in-tree plugin does
(pkg/scheduler/framework/preemption). Up to `EXACT` pods all choices that would be better are looked at besides. More freed never makes a pod fit less,
so a choice within one that does not do is not asked about.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from dra.objects import Pod, PodDisruptionBudget, ResourceClaimStatus, claim_names, protects
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.objects import ResourceClaim
    from dra.stock import Stock

EXACT = 8  # pods among which every choice is looked at
NEVER = "Never"

Choice: TypeAlias = tuple[Pod, ...]
Does: TypeAlias = Callable[[Choice], bool]  # whether it would do if these were gone
Fits: TypeAlias = Callable[[str, Choice], bool]  # on a node, once these are gone
Disruption: TypeAlias = tuple[int, int, int, tuple[str, ...]]


class Victims(msgspec.Struct, frozen=True):
    """Who would have to go for a pod to fit on a node, the most important first."""

    node: str
    pods: Choice


class Holders(msgspec.Struct, frozen=True):
    """The pods that may have to go for one pod, by where what they hold is; with the budgets that protect them."""

    by_pool: dict[PoolId, list[Pod]]
    by_node: dict[str, list[Pod]]
    budgets: tuple[PodDisruptionBudget, ...]

    def near(self, node: str, stock: Stock) -> tuple[Pod, ...]:
        """List those that hold something a node could use, the most important first."""
        found = {pod.metadata.uid: pod for pod in self.by_node.get(node, ())}
        for pool in stock.pools(node):
            for pod in self.by_pool.get(pool.id, ()):
                found[pod.metadata.uid] = pod
        return tuple(sorted(found.values(), key=importance))


def priority(pod: Pod) -> int:
    """Say how important a pod is; one that says nothing is worth 0."""
    return pod.spec.priority or 0


def importance(pod: Pod) -> tuple[int, str, str]:
    """Sort pods by it: the most important first, and of equals the older."""
    return -priority(pod), pod.metadata.creation_timestamp, pod.metadata.uid


def may_preempt(pod: Pod) -> bool:
    """Say whether a pod may have others evicted."""
    return pod.spec.preemption_policy != NEVER


def holders_below(
    pod: Pod, others: Iterable[Pod], stock: Stock, budgets: Iterable[PodDisruptionBudget] = ()
) -> Holders:
    """Find the pods on nodes that are less important than a pod, and what they hold."""
    by_pool: dict[PoolId, list[Pod]] = {}
    by_node: dict[str, list[Pod]] = {}
    limit = priority(pod)
    for other in others:
        running = other.spec.node_name and not other.has_ended
        if not running or priority(other) >= limit:
            continue
        here = by_node.setdefault(other.spec.node_name, [])
        here.append(other)
        for pool in sorted(_pools(other, stock)):
            users = by_pool.setdefault(pool, [])
            users.append(other)
    return Holders(by_pool, by_node, tuple(budgets))


def make_room(node: str, holders: Holders, stock: Stock, fits: Fits) -> Victims | None:
    """Choose who would have to go from a node; None if that would not do, whoever went.

    Those that are leaving already cost nothing, and are gone in every choice.
    """
    near = holders.near(node, stock)
    leaving = tuple(filter(_is_leaving, near))
    staying = tuple(pod for pod in near if not _is_leaving(pod))

    def does(choice: Choice) -> bool:
        return fits(node, (*choice, *leaving))

    if not does(staying):
        return None
    if does(()):
        return Victims(node, ())
    chosen = _spare(staying, holders.budgets, does)
    if len(staying) <= EXACT:
        chosen = _better(chosen, staying, holders.budgets, does)
    return Victims(node, chosen)


def least(choices: Iterable[Victims], budgets: Sequence[PodDisruptionBudget]) -> Victims | None:
    """Pick the choice that disrupts least, the first of equals."""
    return min(choices, key=lambda choice: disruption(choice.pods, budgets), default=None)


def disruption(pods: Sequence[Pod], budgets: Iterable[PodDisruptionBudget]) -> Disruption:
    """Say how much it disrupts to evict some pods; less is better."""
    highest = max(map(priority, pods), default=-(1 << 31))
    ages = sorted(_youth(pod) for pod in pods)
    return _violations(pods, budgets), highest, len(pods), tuple(reversed(ages))


def without_pods(stock: Stock, pods: Iterable[Pod]) -> Stock:
    """Answer with the stock after some pods are gone: claims that nobody else has reserved are free again."""
    leaving: set[str] = set()
    keys: set[str] = set()
    for pod in pods:
        leaving.add(pod.metadata.uid)
        keys.update(_claim_keys(pod))
    free: list[ResourceClaim] = []
    for key in sorted(keys):
        claim = stock.claims.get(key)
        if claim is not None and _is_left_by(claim, leaving):
            released = _release(claim)
            free.append(released)
    return stock.with_claims(free) if free else stock


def without_the_gone(stock: Stock, pods: Iterable[Pod]) -> Stock:
    """Answer with the stock after claims are released whose pods are all gone or finished already: nobody has to go for these.

    `pods` are all there are. Who releases claims comes a moment after the pods have gone.
    """
    alive: set[str] = set()
    for pod in pods:
        if not pod.has_ended:
            alive.add(pod.metadata.uid)
    free: list[ResourceClaim] = []
    for claim in stock.claims.values():
        consumers = claim.status.reserved_for
        strangers = [one for one in consumers if one.resource != "pods"]
        gone = {one.uid for one in consumers} - alive
        if not strangers and _is_left_by(claim, gone):
            released = _release(claim)
            free.append(released)
    return stock.with_claims(free) if free else stock


def _is_leaving(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp)


def _spare(staying: Choice, budgets: Sequence[PodDisruptionBudget], does: Does) -> Choice:
    """Let come back who can, those first whose eviction no budget allows."""
    protected = [pod for pod in staying if _violations((pod,), budgets)]
    others = [pod for pod in staying if pod not in protected]
    gone = staying
    for pod in (*protected, *others):
        left = tuple(one for one in gone if one is not pod)
        if does(left):
            gone = left
    return gone


def _better(chosen: Choice, staying: Choice, budgets: Sequence[PodDisruptionBudget], does: Does) -> Choice:
    """Look at every choice that disrupts less than one that does."""
    most = disruption(chosen, budgets)
    better: list[tuple[Disruption, Choice]] = []
    for size in range(1, len(staying)):
        for choice in combinations(staying, size):
            cost = disruption(choice, budgets)
            if cost < most:
                better.append((cost, choice))
    too_few: list[set[str]] = []
    for _, choice in sorted(better, key=itemgetter(0)):
        uids = {pod.metadata.uid for pod in choice}
        if any(uids <= failed for failed in too_few):
            continue
        if does(choice):
            return choice
        too_few.append(uids)
    return chosen


def _violations(pods: Sequence[Pod], budgets: Iterable[PodDisruptionBudget]) -> int:
    """Count the evictions beyond what budgets allow."""
    beyond = 0
    for budget in budgets:
        evicted = sum(protects(budget, pod) for pod in pods)
        beyond += max(0, evicted - budget.status.disruptions_allowed)
    return beyond


def _youth(pod: Pod) -> str:
    """Turn a time of creation into what is the less the younger the pod is: times are digits at fixed places."""
    return "".join(str(9 - int(one)) for one in pod.metadata.creation_timestamp if one.isdecimal() and one.isascii())


def _pools(pod: Pod, stock: Stock) -> set[PoolId]:
    found: set[PoolId] = set()
    for key in _claim_keys(pod):
        claim = stock.claims.get(key)
        allocation = claim.status.allocation if claim is not None else None
        results = allocation.devices.results if allocation is not None else ()
        for result in results:
            pool = result.driver, result.pool
            found.add(pool)
    return found


def _claim_keys(pod: Pod) -> list[str]:
    namespace = pod.metadata.namespace or "default"
    return [f"{namespace}/{name}" for name in claim_names(pod)]


def _release(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=ResourceClaimStatus())


def _is_left_by(claim: ResourceClaim, leaving: set[str]) -> bool:
    consumers = {consumer.uid for consumer in claim.status.reserved_for}
    return claim.status.allocation is not None and bool(consumers) and consumers <= leaving
