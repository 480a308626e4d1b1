"""Finds what keeps a waiting pod from running: the set of obstacles on a node that costs least to remove, and who can remove it.

There are two questions, in this order. The first: could a node serve the pod if no device were in use, no device were tainted and every node and
pool were in order? If not, the pod's author has to change the request. The second: which obstacles have to be removed? Sets of obstacles are
removed in the order of their cost, and the first set with which a node serves the pod is the way out.

A pod of higher priority is never a remedy. A toleration is never proposed for a taint that reports the health or the maintenance of a device.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from enum import IntEnum, StrEnum
from functools import cached_property, partial
from itertools import chain, product
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator import SearchOptions, allocate
from allocator.decisions import node_obstacle
from allocator.pods import BarrierKind, barriers_by_name, plugin_offers, reports_health, requests, total
from allocator.reasons import drivers_of, request_positions
from analysis.capacity import pods_of, since_of, unused_claims
from dra import step_limits
from dra.codes import CODES
from dra.errors import NodeSelectorError
from dra.objects import EXTENDED_CLAIM, blocks, results_of, selects, served_resources
from dra.quantity import Quantity
from dra.reason import Actor, Reason
from dra.stock import PoolStatus
from dra.texts import count_of, list_first
from dra.validation import shape
from webhook.placement import Feasibility, can_any_node_serve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from allocator.decisions import PodClaims
    from allocator.pods import Amounts, Barrier
    from analysis.loading import Reading
    from dra.objects import DeviceRequestAllocationResult, DeviceTaint, Pod, ResourceSlice
    from dra.stock import Pool, PoolId, Stock

LONGEST = 160  # characters of a sentence or a remedy
_NAMED = 3
_NOTHING = Quantity.from_nano(0)
_TESTED = "correct this selector: read an attribute that a device may lack as `.?NAME.orValue(VALUE)`"


class Degree(StrEnum):
    """Who has to act before a waiting pod runs."""

    WAITS = "waits"  # nobody: a node serves the pod once pods or claims that exist end
    CHANGE = "needs a change"  # somebody has to repair, delete or correct something
    NEVER = "never"  # the author: the pod requests more than any node has


_CODES = {Degree.WAITS: "", Degree.CHANGE: "O119", Degree.NEVER: "O115"}


class Cost(IntEnum):
    """What it costs to remove an obstacle."""

    NAME = 0  # to correct a misspelt name
    UNUSED = 1  # to delete a claim that no pod uses
    REQUEST = 2  # to request less, or something else
    BROKEN = 3  # to repair a node, a device or a pool
    OWN = 4  # to end pods of the same namespace
    EQUAL = 5  # to wait until pods of equal or lower priority end
    HIGHER = 9  # to wait until pods of higher priority end


class Obstacle(msgspec.Struct, frozen=True):
    """One thing that keeps a pod off a node. `subject` is Kind/namespace/name, `remedy` is "" if only waiting helps."""

    kind: str
    subject: str
    cost: int
    actor: Actor
    text: str
    remedy: str = ""


class WayOut(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cheapest set of obstacles, the cheapest obstacle first; the sentence is about the set, the remedy about its first obstacle."""

    degree: Degree
    text: str
    remedy: str = ""
    obstacles: tuple[Obstacle, ...] = ()
    node: str = ""

    def reason(self, waits_for: Actor) -> Reason:
        """Return the way out as the reason of a pod. A pod that only waits, waits for `waits_for`."""
        actor = waits_for if self.degree is Degree.WAITS else self.obstacles[0].actor
        return Reason(
            causes=() if self.degree is Degree.WAITS else tuple([obstacle.subject for obstacle in self.obstacles]),
            text=self.text,
            actor=actor,
            code=_CODES[self.degree],
            never=self.degree is Degree.NEVER,
            remedies=(self.remedy,) if self.remedy else (),
        )

    def without_remedies(self) -> WayOut:
        """Return the way out without remedies, for a pod that has to wait for something else, too."""
        obstacles = tuple([replace(obstacle, remedy="") for obstacle in self.obstacles])
        return replace(self, remedy="", obstacles=obstacles)


_UNKNOWN = WayOut(degree=Degree.WAITS, text="it is not known what it waits for: the search takes too many steps")


class Removed(NamedTuple):
    """A set of kinds of obstacles. `held` is the highest level of pods that end: 0, OWN, EQUAL or HIGHER."""

    unused: bool
    broken: bool
    held: int

    @property
    def cost(self) -> int:
        return self.unused * Cost.UNUSED + self.broken * Cost.BROKEN + self.held


SETS = sorted(
    [Removed(*kinds) for kinds in product((False, True), (False, True), (0, Cost.OWN, Cost.EQUAL, Cost.HIGHER))],
    key=lambda removed: (removed.cost, removed),
)
IDEAL = Removed(unused=True, broken=True, held=Cost.HIGHER)


def find_way_out(pod: Pod, pod_claims: PodClaims, reading: Reading) -> WayOut:
    """Return what keeps a pod from running that no node can serve now."""
    search = _Search(pod, pod_claims, reading)
    way_out = search.way_out()
    return _UNKNOWN if search.budget.is_out else way_out


class RelaxedStocks:
    """The stock of a reading without some obstacles. Every stock is built once."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.stock = reading, reading.stock
        self.unused = unused_claims(reading)
        self._pods = {pod.metadata.uid: pod for pod in reading.pods.values() if not pod.has_ended}
        self.used = reading.used if reading.knows_pods else {}
        self._built: dict[tuple[Removed, tuple[int, str]], Stock] = {}
        self._pools: dict[str, list[Pool]] = {}
        self._used_without: dict[tuple[int, tuple[int, str]], Mapping[str, Amounts]] = {}
        self._levels: dict[tuple[int, str], dict[str, Cost]] = {}  # by priority and namespace of the waiting pod
        allocated = [key for key, claim in self.stock.claims.items() if claim.status.allocation is not None]
        self.used_claims = [key for key in allocated if key not in self.unused]

    @cached_property
    def users(self) -> dict[str, list[Pod]]:
        """The living pods for which each claim is reserved."""
        return {
            key: [self._pods[user.uid] for user in claim.status.reserved_for if user.uid in self._pods]
            for key, claim in self.stock.claims.items()
        }

    @cached_property
    def running(self) -> defaultdict[str, list[Pod]]:
        """The pods on each node; none if not all pods were read."""
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.reading.running if self.reading.knows_pods else ():
            pods[pod.spec.node_name].append(pod)
        return pods

    @cached_property
    def repaired(self) -> Stock:
        """The stock without device taints and DeviceTaintRules, in which incomplete pools consist of the slices that they have."""
        changed: list[ResourceSlice] = []
        for pool in self.stock.pages_of:
            pages = self.stock.newest_pages(pool)
            for page in pages:
                spec = page.slice.spec
                devices = tuple([replace(device, taints=()) for device in spec.devices])
                of_pool = replace(spec.pool, resource_slice_count=min(len(pages), spec.pool.resource_slice_count))
                if (devices, of_pool) != (spec.devices, spec.pool):
                    changed.append(replace(page.slice, spec=replace(spec, devices=devices, pool=of_pool)))
        return self.stock.with_all(changed, removed=self.stock.rules.values())

    def without(self, removed: Removed, pod: Pod) -> Stock:
        """Return the stock without these obstacles of a pod."""
        asked = removed, _whose(removed.held, pod)
        if asked not in self._built:
            keys = [key for key, level in self.levels_for(pod).items() if level <= removed.held]
            keys += self.unused if removed.unused else ()
            stock = self.repaired if removed.broken else self.stock
            self._built[asked] = stock.with_all((), removed=[stock.claims[key] for key in keys])
        return self._built[asked]

    def pools(self, node: str) -> list[Pool]:
        """Return the pools of a node; none if it is unknown which devices the node has."""
        if node not in self._pools:
            self._pools[node] = []
            with suppress(NodeSelectorError):
                self._pools[node] = self.stock.pools(node)
        return self._pools[node]

    def in_reach(self, node: str) -> set[str]:
        """Return the claims that hold devices of a node's pools."""
        return {key for pool in self.pools(node) for key in self.stock.results.get(pool.id, ())}

    def used_without(self, held: int, pod: Pod) -> Mapping[str, Amounts]:
        """Return by node what pods use once those up to this level have ended, for a waiting pod."""
        if not held or held == Cost.HIGHER:
            return {} if held else self.used
        asked = held, _whose(held, pod)
        if asked not in self._used_without:
            waiting = pod.spec.priority or 0, _namespace_of(pod)
            pods = chain.from_iterable(self.running.values())
            self._used_without[asked] = total(stays for stays in pods if _level_of(stays, *waiting) > held)
        return self._used_without[asked]

    def levels_for(self, pod: Pod) -> dict[str, Cost]:
        """Return by claim what it costs a pod to wait for the claim's living users; pods of one priority and namespace share the answer."""
        waiting = pod.spec.priority or 0, _namespace_of(pod)
        if waiting not in self._levels:
            self._levels[waiting] = {
                key: max([_level_of(user, *waiting) for user in self.users[key]], default=Cost.EQUAL)
                for key in self.used_claims
            }
        return self._levels[waiting]


def _namespace_of(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


def _whose(held: int, pod: Pod) -> tuple[int, str]:
    """Return what of a waiting pod decides which pods are up to a level: nothing, its priority, or its namespace, too."""
    if held in (0, Cost.HIGHER):
        return 0, ""
    return pod.spec.priority or 0, _namespace_of(pod) if held == Cost.OWN else ""


def _level_of(pod: Pod, priority: int, namespace: str) -> Cost:
    """Return what it costs a pod of this priority and namespace to wait for another pod."""
    if (pod.spec.priority or 0) > priority:
        return Cost.HIGHER
    return Cost.OWN if _namespace_of(pod) == namespace else Cost.EQUAL


class _Search:
    """The search for one pod."""

    def __init__(self, pod: Pod, pod_claims: PodClaims, reading: Reading) -> None:
        self.pod, self.claims, self.reading, self.stock = pod, pod_claims, reading, reading.stock
        self.stocks: RelaxedStocks = reading.derived.get(RelaxedStocks) or RelaxedStocks(reading)
        reading.derived[RelaxedStocks] = self.stocks
        self.budget = reading.work.part(step_limits.BLOCKERS)
        self.options = SearchOptions(budget=self.budget)
        self.barriers_on = barriers_by_name(pod, served_resources(pod, self.stock.serving()))
        # The nodes on which device plugins serve the pod's extended resources.
        self.plugins = {
            name
            for name, node in self.stock.nodes.items()
            if pod_claims.uncreated is not None
            and all(plugin_offers(node, resource) for resource in pod_claims.by_claim)
        }
        # By node: what its author would have to change, and what an administrator would have to repair.
        self.own: dict[str, list[Barrier]] = {}
        self.broken: dict[str, list[Obstacle]] = {}
        for name, node in self.stock.nodes.items():
            for barrier in self.barriers_on(node, {}):
                if repair := self._repair(name, barrier):
                    self.broken.setdefault(name, []).append(repair)
                else:
                    self.own.setdefault(name, []).append(barrier)

    def way_out(self) -> WayOut:
        reached = {name for name in self.stock.nodes if name not in self.own and not self._kept_by_claims(name)}
        if not self.serving(IDEAL, reached):
            return self._of_author()
        is_broken = bool(self.broken) or self.stocks.repaired is not self.stock
        sets = [of for of in SETS if of.unused <= bool(self.stocks.unused) and of.broken <= is_broken]
        served = ((removed, self.serving(removed, reached)) for removed in sets)
        removed, able = next(answer for answer in served if answer[1])  # the last of the sets is as good as IDEAL
        stays = self.stocks.without(removed, self.pod).claims.keys()
        node = min(able, key=lambda name: (sum(key not in stays for key in self.stocks.in_reach(name)), name))
        obstacles = sorted(set(self._obstacles(node, removed)), key=attrgetter("cost", "subject", "text"))
        waits = self.serving(Removed(unused=False, broken=False, held=Cost.HIGHER), reached)
        others = f"; {count_of(len(able) - 1, 'more node')} could serve it, too" if len(able) > 1 else ""
        way_out = _way_out(Degree.WAITS if waits else Degree.CHANGE, tuple(obstacles), node)
        return replace(way_out, text=f"{way_out.text}{others}") if len(way_out.text + others) <= LONGEST else way_out

    def serving(self, removed: Removed, nodes: Collection[str]) -> list[str]:
        """Return the nodes of those that the pod may use which serve the pod without these obstacles."""
        in_order = [name for name in nodes if removed.broken or name not in self.broken]
        able = self._devices(removed, in_order)
        used = self.stocks.used_without(removed.held, self.pod)
        return [name for name in in_order if name in able and not any(self._lacking(name, used.get(name, {})))]

    def _devices(self, removed: Removed, nodes: Collection[str]) -> set[str]:
        """Return the nodes whose devices can serve the pod without these obstacles."""
        is_idle = removed.held == Cost.HIGHER and (removed.unused or not self.stocks.unused)
        idle = self.stocks.repaired if removed.broken else self.stock
        stock = idle if is_idle else self.stocks.without(removed, self.pod)
        search = partial(self.reading.decider.search_fleet, stock, idle=is_idle, options=self.options)
        able: set[str] = set()
        for names, claims in (
            ({name for name in nodes if name not in self.plugins}, self.claims.open),
            (set(self.plugins.intersection(nodes)), self.claims.without_uncreated().open),
        ):
            if names and claims:
                able.update(search(claims, within=names).feasible)
            else:
                able |= names
        return able

    def _lacking(self, name: str, used: Mapping[str, int]) -> Iterator[Barrier]:
        """Yield the resources of which a node has too little if these amounts are in use."""
        for barrier in self.barriers_on(self.stock.nodes[name], used):
            if barrier.kind is BarrierKind.AMOUNT:
                yield barrier

    def _kept_by_claims(self, name: str) -> str:
        claims = self.claims.without_uncreated() if name in self.plugins else self.claims
        return node_obstacle(claims, self.stock.nodes[name])

    # ---- what is in the way on a node

    def _repair(self, name: str, barrier: Barrier) -> Obstacle | None:
        """Return the obstacle of a node that an administrator has to repair; None if the pod does not fit the node."""
        text, subject = f"node {name}, which could serve it,", f"Node/{name}"
        if barrier.kind is BarrierKind.CORDON:
            remedy, text = f"uncordon node {name}", f"{text} is cordoned"
        elif barrier.kind is BarrierKind.TAINT and reports_health(barrier.subject):
            remedy, text = f"repair node {name}", f"{text} has taint {barrier.detail}"
            if not barrier.subject.startswith("node."):
                remedy = f"end the maintenance of node {name}, and remove its taint {barrier.detail}"
        else:
            return None
        return Obstacle(barrier.kind, subject, Cost.BROKEN, Actor.ADMINISTRATOR, text, remedy)

    def _obstacles(self, name: str, removed: Removed) -> Iterator[Obstacle]:
        """Yield the obstacles of a set that are in the way on one node."""
        if removed.broken:
            yield from self.broken.get(name, ())
        stock = self.stocks.without(removed, self.pod)
        claims = self.claims.without_uncreated().open if name in self.plugins else self.claims.open
        gone = [key for key in self.stocks.in_reach(name) if key not in stock.claims]
        ending: dict[str, Pod] = {}
        # Keep the claims that need not go: first those of the most important pods, then the oldest.
        for key in sorted(gone, key=self._importance):
            kept = stock.with_object(self.stock.claims[key])
            if not claims or allocate(kept, name, claims, options=self.options).feasible:
                stock = kept
            else:
                yield self._holder(name, key)
                ending |= {pod.metadata.key: pod for pod in self.stocks.users[key] if key not in self.stocks.unused}
        if claims and removed.broken:
            yield from self._unusable(name, allocate(stock, name, claims, options=self.options).results)
        left = [pod for pod in self.stocks.running[name] if pod.metadata.key not in ending]
        for barrier in self._lacking(name, total(left).get(name, {})):
            yield self._short(name, barrier)

    def _importance(self, key: str) -> tuple[bool, int, str, str]:
        most = max((pod.spec.priority or 0 for pod in self.stocks.users[key]), default=0)
        return key in self.stocks.unused, -most, since_of(self.stock.claims[key]), key

    def _holder(self, name: str, key: str) -> Obstacle:
        """Return the obstacle that a claim holds devices of a node."""
        claim = self.stock.claims[key]
        pools = {pool.id for pool in self.stocks.pools(name)}
        held = [result.device for result in results_of(claim) if (result.driver, result.pool) in pools]
        devices = f"{list_first(held, _NAMED)} of node {name}"
        since = f" since {since_of(claim)}" if since_of(claim) else ""
        if key in self.stocks.unused:
            text, subject = f"claim {key} holds {devices}{since}, and no pod uses it", f"ResourceClaim/{key}"
            remedy = f"delete claim {key}"
            return Obstacle("unused claim", subject, Cost.UNUSED, Actor.ADMINISTRATOR, text, remedy)
        users = self.stocks.users[key]
        cost = self.stocks.levels_for(self.pod)[key]
        holder = f"pod {list_first(pods_of(claim), _NAMED)}" if pods_of(claim) else f"claim {key}"
        importance = ", which has a higher priority," if cost is Cost.HIGHER else ""
        text = f"{holder}{importance} holds {devices}{since}"
        subject = f"Pod/{users[0].metadata.key}" if users else f"ResourceClaim/{key}"
        return Obstacle("holder", subject, cost, Actor.NONE, text)

    def _unusable(self, name: str, results: Iterable[DeviceRequestAllocationResult]) -> Iterator[Obstacle]:
        """Yield the taints and the incomplete pools of the devices that the pod would get on a repaired node."""
        pools = {pool.id: pool for pool in self.stocks.pools(name)}
        for result in results:
            pool = pools.get((result.driver, result.pool))
            if pool is None or pool.status is not PoolStatus.OK:
                yield _incomplete(name, (result.driver, result.pool), pool.reason if pool else "")
            published = self.stock.devices((result.driver, result.pool)).find(result.device, name)
            for taint in published[1].taints if published is not None else ():
                if blocks(taint, result.tolerations):
                    yield self._tainted(name, taint, result)

    def _tainted(self, name: str, taint: DeviceTaint, result: DeviceRequestAllocationResult) -> Obstacle:
        """Return the obstacle that a device of a node has a taint. A taint that reports the health of the device is never tolerated."""
        written = f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
        rules = [
            rule.metadata.name
            for rule in self.stock.rules.values()
            if rule.spec.taint.key == taint.key
            and selects(rule.spec.device_selector, result.driver, result.pool, result.device)
        ]
        subject, text = f"Node/{name}", f"devices of node {name}, which could serve it, have taint {written}"
        repair = f"repair the devices of node {name}"
        if rules:
            subject = f"DeviceTaintRule/{rules[0]}"
            text = f"{text} of DeviceTaintRule {rules[0]}"
            repair = f"{repair}, then delete DeviceTaintRule {rules[0]}"
        actor = Actor.ADMINISTRATOR
        if not reports_health(taint.key):
            actor, repair = Actor.USER, f"let request {result.request} of the claim tolerate {written}"
            if any(claim.metadata.annotations.get(EXTENDED_CLAIM) == "true" for claim in self.claims.open):
                repair = f"write a ResourceClaim that tolerates {written}: claims for extended resources cannot"
        return Obstacle("device taint", subject, Cost.BROKEN, actor, text, repair)

    def _short(self, name: str, barrier: Barrier) -> Obstacle:
        """Return the obstacle that other pods leave too little of a resource on a node."""
        resource, running = barrier.subject, self.stocks.running[name]
        if resource == "pods" or not running:
            text = f"node {name} has as many pods as it can have"
            return Obstacle("amount", f"Node/{name}", Cost.EQUAL, Actor.NONE, text)
        largest = max(running, key=lambda pod: requests(pod).get(resource, 0))
        level = _level_of(largest, self.pod.spec.priority or 0, _namespace_of(self.pod))
        text = f"the pods on node {name} leave too little {resource}, of which pod {largest.metadata.key} requests the most"
        return Obstacle("amount", f"Pod/{largest.metadata.key}", level, Actor.NONE, text)

    # ---- what the pod's author has to change

    def _of_author(self) -> WayOut:
        """Return the change of the pod without which no node could serve it, even if every node were free and in order."""
        placement = {BarrierKind.NODE_NAME, BarrierKind.LABELS}
        chosen = [name for name in self.stock.nodes if placement.isdisjoint(self._kinds(name))]
        able = self._devices(IDEAL, chosen or self.stock.nodes)
        if not able:
            return self._of_claims(chosen)
        required = {
            name: (bool(self._kept_by_claims(name)), BarrierKind.LABELS in kinds, BarrierKind.TAINT in kinds)
            for name in able
            for kinds in [self._kinds(name)]
        }
        least = min(required.values())
        names = sorted([name for name in able if required[name] == least])
        obstacles = tuple(self._changes(names))
        only_amounts = {obstacle.kind for obstacle in obstacles} == {"amount"}
        return _way_out(Degree.NEVER if only_amounts else Degree.CHANGE, obstacles, names[0])

    def _kinds(self, name: str) -> list[BarrierKind]:
        return [barrier.kind for barrier in self.own.get(name, ())]

    def _changes(self, names: Sequence[str]) -> Iterator[Obstacle]:
        """Yield what the author has to change before one of these nodes, which require the same kinds of changes, can serve the pod."""
        first, listed = names[0], f"node{'s' * (len(names) > 1)} {list_first(names, _NAMED)}"
        subject = f"Pod/{self.pod.metadata.key}"
        if kept := self._kept_by_claims(first):
            text = f"node {first} could serve it, but {kept.removeprefix('node(s) ')}"
            remedy = "let the pod run where its claim is allocated, or delete the claim if no pod uses it"
            yield Obstacle("claim", subject, Cost.REQUEST, Actor.USER, text, remedy)
        for barrier in self.own.get(first, ()):
            if barrier.kind is BarrierKind.AMOUNT:
                yield self._too_much(barrier, names)
                continue
            cost, remedy = Cost.REQUEST, f"select labels of node {first}, or request what the selected nodes have"
            text = f"{listed} could serve it, but its node selector or affinity does not allow them"
            if barrier.kind is BarrierKind.TAINT:
                tolerated = {toleration.key for toleration in self.pod.spec.tolerations} - {barrier.subject}
                misspelt = next((key for key in sorted(tolerated) if shape.nearest_kind(key, [barrier.subject])), "")
                text = f"{listed} could serve it, but the pod does not tolerate taint {barrier.detail}"
                remedy = f"tolerate {barrier.detail}, or free nodes without this taint"
                if misspelt:
                    cost, remedy = Cost.NAME, f"tolerate {barrier.subject} instead of {misspelt}"
            yield Obstacle(barrier.kind, subject, cost, Actor.USER, text, remedy)

    def _too_much(self, barrier: Barrier, names: Sequence[str]) -> Obstacle:
        """Return the obstacle that the pod requests more of a resource than a free node has; the remedy is what a node has left now."""
        resource, used = barrier.subject, self.stocks.used
        amounts = {name: self.stock.nodes[name].status.allocatable.get(resource, _NOTHING) for name in names}
        most = max(amounts.values(), key=attrgetter("nano"))
        text = f"no node that could serve it has {resource}"
        remedy = f"remove {resource} from what it requests, or let a node have it"
        if most.nano:
            requested = Quantity.from_nano(requests(self.pod)[resource], most.format)
            left = max(amount.nano - used.get(name, {}).get(resource, 0) for name, amount in amounts.items())
            text = f"it requests {requested} {resource}, and the largest node that could serve it has {most}"
            remedy = f"request at most {Quantity.from_nano(left, most.format) if left > 0 else most} {resource}"
        return Obstacle("amount", f"Pod/{self.pod.metadata.key}", Cost.REQUEST, Actor.USER, text, remedy)

    def _of_claims(self, chosen: Collection[str]) -> WayOut:
        """Return why none of the chosen nodes could serve the claims; the webhook gives a new pod the same reason.

        An incomplete pool counts if no complete pool of its driver shows what the missing slices can have.
        """
        known, classes = self.reading.state.fleet.classes, self.stock.classes
        requested = [spot.body.device_class_name for spot in request_positions(self.claims.open)]
        drivers = set[str]().union(*[drivers_of(classes[name].spec) for name in requested if name in classes])
        pools = [(name, pool) for name in chosen for pool in self.stocks.pools(name) if pool.id[0] in drivers]
        complete = {pool.id[0] for _, pool in pools if pool.status is PoolStatus.OK}
        incomplete = [(name, pool) for name, pool in pools if pool.id[0] not in complete]
        if incomplete:
            name, pool = min(incomplete, key=itemgetter(0))
            return _way_out(Degree.CHANGE, (_incomplete(name, pool.id, pool.reason),), name)
        stock = self.stocks.without(Removed(unused=False, broken=True, held=0), self.pod)
        judgement = can_any_node_serve(
            stock,
            self.claims.open,
            memo=self.reading.memo,
            prospects=self.reading.state.prospects,
            within=frozenset(chosen) if chosen and len(chosen) < len(self.stock.nodes) else None,
        )
        if judgement.verdict is not Feasibility.NEVER and not judgement.is_fault:
            return WayOut(degree=Degree.WAITS, text=judgement.text)
        without_devices = [name for name in requested if name in known and not known[name].devices]
        subject = f"DeviceClass/{without_devices[0]}" if without_devices else f"Pod/{self.pod.metadata.key}"
        remedy = CODES["O108"].remedy if without_devices else _TESTED if judgement.is_fault else judgement.remedy
        obstacle = Obstacle("request", subject, Cost.REQUEST, Actor.USER, judgement.text, remedy)
        return replace(_way_out(Degree.NEVER, (obstacle,)), text=judgement.text, remedy=remedy)


def _way_out(degree: Degree, obstacles: tuple[Obstacle, ...], node: str = "") -> WayOut:
    text = "; ".join([obstacle.text for obstacle in obstacles]) or f"node {node} can serve it now"
    remedy = next((obstacle.remedy for obstacle in obstacles if obstacle.remedy), "")
    return WayOut(degree=degree, text=_clip(text), remedy=_clip(remedy), obstacles=obstacles, node=node)


def _incomplete(node: str, pool: PoolId, reason: str) -> Obstacle:
    """Return the obstacle that a pool of a node cannot be used."""
    text = f"pool {'/'.join(pool)} of node {node} cannot be used: {reason}"
    remedy = f"restart the driver on node {node}, so that it publishes all slices of the pool"
    return Obstacle("pool", f"ResourcePool/{'/'.join(pool)}", Cost.BROKEN, Actor.DRIVER, text, remedy)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2].rpartition(' ')[0]} …"
