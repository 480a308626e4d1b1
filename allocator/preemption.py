"""Pods that would have to go so that another fits: pods of less priority, and of all choices that do, the one that disrupts least.

Whether a pod fits once others are gone is asked of the caller, with everything these others hold given back: devices, shares,
counters, quota. So no victim is named for a pod that still would not fit. A choice disrupts less than another if it

1. evicts fewer pods beyond what PodDisruptionBudgets allow,
2. spares higher priorities: the most important victim is less important,
3. has fewer victims,
4. and has younger ones.

On a node, first all pods are removed, then each that can is put back, the protected and the important first, as the in-tree plugin does
(pkg/scheduler/framework/preemption). Then what disrupts less is looked at, the least disruptive first, until it is all looked at or
enough was asked. More freed never makes a pod fit less, so a choice within one that does not do is not asked about.

Questions are yielded (`Asking`): the caller answers them, may end the search, and may let others have a turn in between.
"""

from __future__ import annotations

from contextlib import suppress
from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from dra.objects import Pod, PodDisruptionBudget, ResourceClaimStatus, claim_names, protects, results_of
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from dra.objects import ResourceClaim
    from dra.stock import Stock

T = TypeVar("T")
NEVER = "Never"
MOST_NODES = 100  # where it would do that are looked at, as kube-scheduler does at least
LOOKS = 512  # choices on one node that are looked at because they disrupt less: all there are of nine pods
AT_ONCE = 256  # pods, or claims, that are read before others may have a turn: about a millisecond

Choice: TypeAlias = tuple[Pod, ...]
# Yields who would be gone from which node, and is told whether that would do, or None: it has taken long enough. None is yielded
# where only others are to have a turn.
Asking: TypeAlias = "Generator[Victims | None, bool | None, T]"
Find: TypeAlias = "Callable[[str, str], Pod | None]"  # a pod, by namespace and name
Disruption: TypeAlias = tuple[int, int, int, tuple[str, ...]]
_Guards = tuple[PodDisruptionBudget, ...]


class Victims(msgspec.Struct, frozen=True):
    """The pods that would have to go for a pod to fit on a node, the most important first."""

    node: str
    pods: Choice


class _Enough(Exception):  # noqa: N818  not an error
    """It has taken long enough: what was found so far counts."""


class PotentialVictims(msgspec.Struct, frozen=True):
    """Those who hold something that a node could use, the most important first, and who of them is leaving already."""

    node: str
    staying: Choice
    leaving: Choice

    @property
    def has_pods(self) -> bool:
        return bool(self.staying or self.leaving)

    def ask(self, choice: Choice) -> Asking[bool]:
        """Ask whether it would do if these went, and who is leaving was gone."""
        answer = yield Victims(self.node, (*choice, *self.leaving))
        if answer is None:
            raise _Enough
        return answer


class Holders(msgspec.Struct, frozen=True):
    """The pods that may have to go for one pod, by where what they hold is; with the budgets that protect them."""

    by_pool: dict[PoolId, list[Pod]]
    by_node: dict[str, list[Pod]]
    budgets: dict[str, list[PodDisruptionBudget]]  # by namespace
    _guards: dict[str, _Guards] = {}  # those of a pod, by uid, once they were looked for

    def pods(self) -> Choice:
        """List all of them."""
        return tuple(pod for here in self.by_node.values() for pod in here)

    def near(self, nodes: Sequence[str], stock: Stock) -> PotentialVictims:
        """List those that hold something that one of some nodes could use."""
        here: list[Pod] = []
        pools: set[PoolId] = set()
        for node in nodes:
            here += self.by_node.get(node, ())
            pools.update(pool.id for pool in stock.pools(node))
        for id_ in pools:
            here += self.by_pool.get(id_, ())
        distinct = {pod.metadata.uid: pod for pod in here}
        near = sorted(distinct.values(), key=importance)
        staying = tuple(pod for pod in near if not pod.metadata.deletion_timestamp)
        leaving = tuple(pod for pod in near if pod.metadata.deletion_timestamp)
        return PotentialVictims(nodes[0], staying, leaving)

    def guards(self, pod: Pod) -> _Guards:
        """List the budgets that protect a pod."""
        uid = pod.metadata.uid
        if uid not in self._guards:
            here = self.budgets.get(_namespace(pod), ())
            self._guards[uid] = tuple(one for one in here if protects(one, pod))
        return self._guards[uid]

    def disruption(self, pods: Sequence[Pod]) -> Disruption:
        """Say how much it disrupts to evict some pods; less is better."""
        highest = max(map(priority, pods), default=-(1 << 31))
        # Times are digits at fixed places: nine less each digit is the less the younger a pod is.
        ages = sorted(
            (
                "".join(
                    str(9 - int(one)) for one in pod.metadata.creation_timestamp if one.isdecimal() and one.isascii()
                )
                for pod in pods
            ),
            reverse=True,
        )
        return self._violations(pods), highest, len(pods), tuple(ages)

    def _violations(self, pods: Iterable[Pod]) -> int:
        """Count the evictions beyond what budgets allow."""
        left: dict[str, int] = {}
        for pod in pods:
            for guard in self.guards(pod):
                key = guard.metadata.key
                left[key] = left.get(key, guard.status.disruptions_allowed) - 1
        return sum(max(0, -one) for one in left.values())

    def protected(self, pods: Iterable[Pod]) -> list[Pod]:
        """List those whose eviction alone is beyond what budgets allow."""
        return [pod for pod in pods if self._violations((pod,))]


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
) -> Asking[Holders]:
    """Find the pods on nodes that are less important than a pod, and what they hold."""
    by_pool: dict[PoolId, list[Pod]] = {}
    by_node: dict[str, list[Pod]] = {}
    limit = priority(pod)
    for at, other in enumerate(others):
        if at % AT_ONCE == 0:
            yield None
        running = other.spec.node_name and not other.has_ended
        if not running or priority(other) >= limit:
            continue
        by_node.setdefault(other.spec.node_name, []).append(other)
        pools = {(one.driver, one.pool) for key in _claim_keys(other) for one in results_of(stock.claims.get(key))}
        for pool in sorted(pools):
            by_pool.setdefault(pool, []).append(other)
    by_namespace: dict[str, list[PodDisruptionBudget]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget.metadata.namespace or "default", []).append(budget)
    return Holders(by_pool, by_node, by_namespace, {})


def make_room(
    nodes: Iterable[str], holders: Holders, stock: Stock, *, together: bool = False
) -> Asking[Victims | None]:
    """Choose a node and who would have to go from it: first what would do on each, then what is better, as long as there is time.

    Nodes `together` are one choice: the pods of a group have one each, and the first stands for all.
    """
    looked: list[tuple[Disruption, Victims, PotentialVictims]] = []
    with suppress(_Enough):
        for places in [tuple(nodes)] if together else ((node,) for node in nodes):
            potential = holders.near(places, stock)
            for pod in potential.staying:
                holders.guards(pod)
                yield None
            found = yield from make_room_on(potential, holders)
            if found is not None:
                cost = holders.disruption(found.pods)
                looked.append((cost, found, potential))
            if len(looked) >= MOST_NODES:
                break
    looked.sort(key=itemgetter(0))
    if not looked:
        return None
    most, chosen, _ = looked[0]
    with suppress(_Enough):
        for _, _, potential in looked if chosen.pods else ():
            better = yield from _improve(potential, holders, most)
            if better is not None:
                chosen = better
                most = holders.disruption(better.pods)
    return chosen


def fewest_to_end(nodes: Iterable[str], holders: Holders, stock: Stock) -> Asking[PotentialVictims | None]:
    """Find the node with the fewest holders where it does once they are gone, and none of them alone would do: such a one ends anyway."""
    near: list[PotentialVictims] = []
    for node in nodes:
        near.append(holders.near((node,), stock))
        yield None
    near.sort(key=lambda one: len(one.staying))
    with suppress(_Enough):
        for there in near:
            if len(there.staying) > 1 and (yield from there.ask(there.staying)):
                for pod in there.staying:
                    if (yield from there.ask((pod,))):
                        return None
                return there
    return None


def settle(asking: Asking[T], does: Callable[[Victims], bool] = lambda _: False) -> T:
    """Answer all that is asked, at once."""
    try:
        asked = next(asking)
        while True:
            answer = asked is not None and does(asked)
            asked = asking.send(answer)
    except StopIteration as end:
        found: T = end.value
        return found


def without_pods(stock: Stock, pods: Iterable[Pod]) -> Stock:
    """Answer with the stock after some pods are gone: claims that no other pod has reserved are free again."""
    leaving: set[str] = set()
    keys: set[str] = set()
    for pod in pods:
        leaving.add(pod.metadata.uid)
        keys.update(_claim_keys(pod))
    free: list[ResourceClaim] = []
    for key in sorted(keys):
        claim = stock.claims.get(key)
        if claim is None or claim.status.allocation is None:
            continue
        consumers = {consumer.uid for consumer in claim.status.reserved_for}
        if consumers and consumers <= leaving:
            free.append(_release(claim))
    return stock.with_all(free) if free else stock


def without_the_gone(stock: Stock, keys: Iterable[str], find: Find) -> Asking[Stock]:
    """Answer with the stock after those of some claims are released whose pods are all gone or finished: no pod has to go for these.

    The controller releases claims a moment after the pods have gone.
    """
    free: list[ResourceClaim] = []
    for at, key in enumerate(keys):
        if at % AT_ONCE == 0:
            yield None
        claim = stock.claims.get(key)
        if claim is None or claim.status.allocation is None:
            continue
        consumers = claim.status.reserved_for
        if not consumers:
            continue
        for one in consumers:
            pod = find(claim.metadata.namespace, one.name) if one.resource == "pods" else None
            # A consumer other than a pod cannot be looked up, and counts as there.
            if one.resource != "pods" or (pod is not None and pod.metadata.uid == one.uid and not pod.has_ended):
                break
        else:
            free.append(_release(claim))
    return stock.with_all(free) if free else stock


def held_near(node: str, stock: Stock) -> set[str]:
    """Name the claims that hold something a node could use."""
    return {key for pool in stock.pools(node) for key in stock.held.get(pool.id, ())}


def make_room_on(potential: PotentialVictims, holders: Holders) -> Asking[Victims | None]:
    """Choose who would have to go from a node; None if that would not do even without all of them.

    Those that are leaving already cost nothing, and are gone in every choice.
    """
    staying = potential.staying
    if not (yield from potential.ask(staying)):
        return None
    if not staying or (yield from potential.ask(())):
        return Victims(potential.node, ())
    protected = holders.protected(staying)
    others = [pod for pod in staying if pod not in protected]
    gone = staying
    # Put back by halves, which ends as one by one does: of many pods few have to go.
    waiting = [others, protected]
    while waiting:
        back = waiting.pop()
        spared = _uids(back)
        left = tuple(one for one in gone if one.metadata.uid not in spared)
        if not back or (yield from potential.ask(left)):
            gone = left
        elif len(back) > 1:
            middle = len(back) // 2
            waiting += [back[middle:], back[:middle]]
    return Victims(potential.node, gone)


def _improve(potential: PotentialVictims, holders: Holders, most: Disruption) -> Asking[Victims | None]:
    """Find the choice that disrupts least, if any disrupts less than `most`.

    A choice is followed by those that have one more in it, who is less important or younger: these disrupt more, so the first that
    does is the one.
    """
    staying = potential.staying
    too_few = yield from _hopeless(potential, holders)
    waiting: list[tuple[Disruption, tuple[int, ...]]] = [(holders.disruption(()), ())]
    for _ in range(LOOKS):
        if not waiting:
            return None
        _, places = heappop(waiting)
        chosen = tuple(staying[at] for at in places)
        uids = _uids(chosen)
        if _is_within(uids, too_few):
            yield None
        else:
            if (yield from potential.ask(chosen)):
                return Victims(potential.node, chosen)
            too_few.append(uids)
        first = places[-1] + 1 if places else 0
        for at in range(first, len(staying)):
            after = _uids(staying[at:])
            if _is_within(uids | after, too_few):
                break
            more = (*chosen, staying[at])
            cost = holders.disruption(more)
            if cost < most:
                heappush(waiting, (cost, (*places, at)))
    return None


def _hopeless(potential: PotentialVictims, holders: Holders) -> Asking[list[frozenset[str]]]:
    """Find large choices that do not do: all pods that no budget protects, and all below some priority."""
    staying = potential.staying
    found: list[frozenset[str]] = [frozenset()]
    protected = holders.protected(staying)
    levels = sorted({priority(pod) for pod in staying})
    choices = [tuple(pod for pod in staying if pod not in protected)]
    choices += [tuple(pod for pod in staying if priority(pod) < level) for level in levels]
    for choice in choices:
        uids = _uids(choice)
        if _is_within(uids, found):
            continue
        if not (yield from potential.ask(choice)):
            found.append(uids)
    return found


def _uids(pods: Iterable[Pod]) -> frozenset[str]:
    return frozenset(pod.metadata.uid for pod in pods)


def _is_within(uids: frozenset[str], choices: Iterable[frozenset[str]]) -> bool:
    return any(uids <= choice for choice in choices)


def _claim_keys(pod: Pod) -> list[str]:
    return [f"{_namespace(pod)}/{name}" for name in claim_names(pod)]


def _namespace(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


def _release(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, status=ResourceClaimStatus())
