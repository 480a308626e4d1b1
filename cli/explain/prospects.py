"""Whether the devices that a pod waits for can be had: the scheduler's words, kind of node by kind of node, and the claims in the way. Pure.

The words are the decider's, which events and denials use as well. Nothing is decided here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from allocator import Options, allocate
from allocator.answer import Stage, Verdict
from allocator.decisions import Decider, Outlook, Serving, advice, find_claims, try_out
from allocator.pods import elsewhere, refusal, total
from allocator.preemption import held_near
from cli.explain.claims import pods_of, since_of
from cli.explain.stories import Beside, Blocker, NodesAlike, Prospect, QuotaUse
from dra.budget import Budget
from dra.objects import serve_resources, served_resources
from dra.policy import QuotaLine, amount_of, held_of_quota, in_scope, limits_of, whose
from dra.stock import amounts_of, results_by_pool
from dra.stock import total as sum_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from allocator.decisions import NodeGroup
    from cli.loading import Scene
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock

_STEPS = 2_000_000  # for all questions about blockers
_NODES = 4  # kinds of nodes of which one is asked about
_ASKED = 16  # holders of a node that are taken away one by one
# Stages at which devices are lost to other claims.
_HELD = frozenset((Stage.IN_USE, Stage.GROUPS, Stage.COMPATIBILITY, Stage.COUNTERS, Stage.CAPACITY, Stage.SEARCH))


def prospect_of(pod: Pod, scene: Scene) -> Prospect | None:
    """Say what is to be expected for the claims of a pod that wait; None if none does."""
    stock = scene.stock
    wants = find_claims(pod, stock)
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
    groups: list[NodesAlike] = []
    fitting: list[str] = []
    for one in tried:
        group = NodesAlike(
            verdict=one.verdict,
            count=len(one.nodes),
            nodes=one.nodes,
            stages=one.stages,
            devices=one.devices,
            error=one.error,
        )
        groups.append(group)
        if one.verdict is Verdict.FEASIBLE:
            fitting += one.nodes
    return Prospect(
        outlook=found.outlook,
        message=found.message,
        nearest=nearest,
        groups=tuple(groups),
        blockers=tuple(blockers),
        beside=tuple(_beside(pod, fitting, scene)),
    )


def _blockers(tried: Iterable[NodeGroup], claims: tuple[ResourceClaim, ...], stock: Stock) -> Iterator[Blocker]:
    """Name the claims that hold wanted devices, on one node of each of the commonest kinds; of some, ask whether freeing them is enough."""
    options = Options(budget=Budget(_STEPS))
    asked_nodes = 0
    idle = stock.idle()
    for group in tried:
        if asked_nodes == _NODES or group.verdict is not Verdict.INFEASIBLE:
            continue
        if _HELD.isdisjoint(one.stage for one in group.stages):
            continue
        node = group.nodes[0]
        # If all were free: devices of which drivers would be given?
        answer = allocate(idle, node, claims, options=options)
        drivers = {result.driver for result in answer.results}
        if not drivers:
            continue
        asked_nodes += 1
        pools = {pool.id for pool in stock.pools(node)}
        asked = 0
        for key in sorted(held_near(node, stock), key=lambda key: (since_of(stock.claims[key]), key)):
            claim = stock.claims[key]
            devices: list[str] = []
            for pool, results in results_by_pool(claim).items():
                if pool in pools and pool[0] in drivers:
                    devices += ["/".join((*pool, result.device)) for result in results]
            if not devices:
                continue
            alone = None
            if asked < _ASKED:
                asked += 1
                answer = allocate(stock.without("ResourceClaim", key), node, claims, options=options)
                alone = None if answer.verdict is Verdict.UNDECIDED else answer.feasible
            yield Blocker(
                node=node,
                claim=key,
                pods=pods_of(claim),
                devices=tuple(devices),
                since=since_of(claim),
                alone=alone,
            )


def _beside(pod: Pod, fitting: Sequence[str], scene: Scene) -> list[Beside]:
    """Say what besides devices keeps a pod from the nodes whose devices would do, the commonest first."""
    if not fitting or not scene.knows_pods:
        return []
    stock = scene.stock
    used = total(scene.pods.values())
    served = served_resources(pod, serve_resources(stock.classes.values()))
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in fitting:
        node = stock.nodes[name]
        # Devices answer for what no device plugin there hands out.
        ignored = [resource for resource in served if not node.status.allocatable.get(resource)]
        why = refusal(pod, node, used.get(name, {}), ignored)
        if why:
            found[why].append(name)
    kept = [Beside(message=why, count=len(names), nodes=tuple(names)) for why, names in found.items()]
    return sorted(kept, key=lambda one: -one.count)


def quota_of(pod: Pod, prospect: Prospect | None, scene: Scene) -> tuple[QuotaUse, ...]:
    """Say how much is used of the quotas that cover a pod, and what the claims that wait would add where they fit."""
    stock = scene.stock
    namespace, priority_class = whose(pod)
    about = [
        one for one in scene.quotas if one.metadata.key.startswith(f"{namespace}/") and in_scope(one, priority_class)
    ]
    if not about:
        return ()
    # What the claims would be given on the first node that can serve them.
    given: tuple[ResourceClaim, ...] = ()
    if prospect is not None and prospect.outlook is Outlook.FITS:
        nodes = [group.nodes[0] for group in prospect.groups if group.verdict is Verdict.FEASIBLE]
        served = Decider().serve(pod, nodes[0], stock) if nodes else None
        given = served.allocated_claims() if isinstance(served, Serving) else ()
    asked = sum_of(amounts_of(claim, stock.pages_of) for claim in given)
    uses: list[QuotaUse] = []
    for quota in about:
        held = held_of_quota(quota, stock, scene.find_pod)
        for limit in limits_of(quota):
            name = f"{limit.quota}: {limit.key}"
            line = QuotaLine(name, amount_of(limit, asked), limit.hard.nano, amount_of(limit, held))
            uses.append(QuotaUse(**line.facts(), exceeded=line.exceeded))
    return tuple(uses)
