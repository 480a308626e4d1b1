"""Whether what a pod waits for can be had: what its scheduler would say, kind of node by kind of node, and who is in the way. Pure.

The words are the decider's, which events and denials use as well. Nothing is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from allocator import Options, allocate
from allocator.answer import Answer, Stage, Verdict
from allocator.decisions import Decider, Outlook, Serving, advice, try_out, wants_of
from allocator.pods import elsewhere, refusal, requests_of, total
from allocator.preemption import held_near
from cli.explain.claims import pods_of, since_of
from cli.explain.stories import Beside, Blocker, NodesAlike, Prospect, QuotaUse
from dra.budget import Budget
from dra.policy import QuotaLine, amount_of, held_of_quota, in_scope, limits_of, whose
from dra.stock import amounts_of, results_by_pool
from dra.stock import total as sum_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from allocator.decisions import NodeGroup
    from cli.explain.scene import Scene
    from dra.objects import Pod, ResourceClaim
    from dra.policy import Limit
    from dra.stock import Amounts, PoolId, Stock

    _Claims = tuple[ResourceClaim, ...]

_STEPS = 2_000_000  # for all questions who is in the way
_NODES = 4  # kinds of nodes on which it is asked
_ASKED = 16  # holders of a node of which it is asked whether they alone are in the way
# Where somebody else has what would do.
_HELD = frozenset((Stage.IN_USE, Stage.GROUPS, Stage.COMPATIBILITY, Stage.COUNTERS, Stage.CAPACITY, Stage.SEARCH))


def prospect_of(pod: Pod, scene: Scene) -> Prospect | None:
    """Say what is to be expected for the claims of a pod that wait; None if none does."""
    stock = scene.stock
    wants = wants_of(pod, stock)
    if not wants.waits_for and not wants.open:
        return None
    found = Decider().outlook(pod, stock)
    if wants.waits_for:
        return Prospect(outlook=found.outlook, message=found.message)
    reachable = [name for name, node in stock.nodes.items() if not elsewhere(wants.claims, node)]
    tried = try_out(wants.open, stock, reachable)
    nearest = ""
    blockers: list[Blocker] = []
    if found.outlook is not Outlook.FITS:
        nearest = advice(pod, stock, found.hindrances)
        blockers += _blockers(tried, wants.open, stock)
    fitting = [name for group in tried if group.verdict is Verdict.FEASIBLE for name in group.nodes]
    return Prospect(
        outlook=found.outlook,
        message=found.message,
        nearest=nearest,
        groups=tuple(_group(one) for one in tried),
        blockers=tuple(blockers),
        beside=tuple(_beside(pod, fitting, scene)),
    )


def _group(one: NodeGroup) -> NodesAlike:
    return NodesAlike(
        verdict=one.verdict,
        count=len(one.nodes),
        nodes=one.nodes,
        stages=one.stages,
        devices=one.devices,
        error=one.error,
    )


# ---- who is in the way


def _blockers(tried: Iterable[NodeGroup], claims: _Claims, stock: Stock) -> Iterator[Blocker]:
    """Name who holds what would be wanted, on one node of each of the commonest kinds that somebody's end could help."""
    options = Options(budget=Budget(_STEPS))
    asked = 0
    idle = stock.idle()
    for group in tried:
        if asked == _NODES or group.verdict is not Verdict.INFEASIBLE:
            continue
        if _HELD.isdisjoint(one.stage for one in group.stages):
            continue
        node = group.nodes[0]
        answer = allocate(idle, node, claims, options=options)
        drivers = _drivers_of(answer)
        if drivers:
            asked += 1
            yield from _on(node, claims, stock, drivers, options)


def _on(node: str, claims: _Claims, stock: Stock, drivers: set[str], options: Options) -> Iterator[Blocker]:
    """Name the holders on a node, those that have held for longest first, and ask of some whether they alone are in the way."""
    pools = {pool.id for pool in stock.pools(node)}
    keys = sorted(held_near(node, stock), key=lambda key: (since_of(stock.claims[key]), key))
    asked = 0
    for key in keys:
        claim = stock.claims[key]
        devices = _devices_of(claim, pools, drivers)
        if not devices:
            continue
        alone = None
        if asked < _ASKED:
            asked += 1
            without = stock.without("ResourceClaim", key)
            answer = allocate(without, node, claims, options=options)
            alone = None if answer.verdict is Verdict.UNDECIDED else answer.feasible
        yield Blocker(
            node=node,
            claim=key,
            pods=pods_of(claim),
            devices=devices,
            since=since_of(claim),
            alone=alone,
        )


def _drivers_of(answer: Answer) -> set[str]:
    """The drivers of the devices that an answer gives."""
    results = [result for granted in answer.allocations for result in granted.allocation.devices.results]
    return {result.driver for result in results}


def _devices_of(claim: ResourceClaim, pools: set[PoolId], drivers: set[str]) -> tuple[str, ...]:
    """Name what a claim holds of some pools, if it is of one of the drivers."""
    names: list[str] = []
    for pool, results in results_by_pool(claim).items():
        if pool in pools and pool[0] in drivers:
            names += ["/".join((*pool, result.device)) for result in results]
    return tuple(names)


# ---- what else keeps it


def _beside(pod: Pod, fitting: Sequence[str], scene: Scene) -> Iterator[Beside]:
    """Say what besides devices keeps a pod from the nodes whose devices would do, the commonest first."""
    if not fitting or not scene.knows_pods:
        return
    stock = scene.stock
    used = total(scene.pods.values())
    ignored = _served(pod, stock)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in fitting:
        here = used.get(name, {})
        node = stock.nodes[name]
        why = refusal(pod, node, here, ignored)
        if why:
            found[why].append(name)
    kept = [_kept_from(names, why) for why, names in found.items()]
    kept.sort(key=lambda one: -one.count)
    yield from kept


def _kept_from(nodes: Sequence[str], why: str) -> Beside:
    return Beside(message=why, count=len(nodes), nodes=tuple(nodes))


def _served(pod: Pod, stock: Stock) -> set[str]:
    """The names that a pod asks for and a DeviceClass serves: devices answer for them."""
    served = {class_.spec.extended_resource_name for class_ in stock.classes.values()}
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return {name for container in containers for name in requests_of(container) if name in served}


# ---- quota


def quota_of(pod: Pod, prospect: Prospect | None, scene: Scene) -> tuple[QuotaUse, ...]:
    """Say how much of the quotas is used that a pod is under, and what the claims that wait would add where they fit."""
    stock = scene.stock
    namespace, priority_class = whose(pod)
    about = [
        one for one in scene.quotas if one.metadata.key.startswith(f"{namespace}/") and in_scope(one, priority_class)
    ]
    if not about:
        return ()
    given = _given(pod, prospect, stock)
    asked = sum_of(amounts_of(claim, stock.pages_of) for claim in given)
    uses: list[QuotaUse] = []
    for quota in about:
        held = held_of_quota(quota, stock, scene.find_pod)
        uses += [_use(limit, asked, held) for limit in limits_of(quota)]
    return tuple(uses)


def _use(limit: Limit, asked: Amounts, held: Amounts) -> QuotaUse:
    more = amount_of(limit, asked)
    used = amount_of(limit, held)
    line = QuotaLine(f"{limit.quota}: {limit.key}", more, limit.hard.nano, used)
    return QuotaUse(**line.facts(), exceeded=line.exceeded)


def _given(pod: Pod, prospect: Prospect | None, stock: Stock) -> _Claims:
    """What the claims that wait would be given on the first node that can serve them."""
    if prospect is None or prospect.outlook is not Outlook.FITS:
        return ()
    for group in prospect.groups:
        if group.verdict is not Verdict.FEASIBLE:
            continue
        served = Decider().serve(pod, group.nodes[0], stock)
        return served.allocated_claims() if isinstance(served, Serving) else ()
    return ()
