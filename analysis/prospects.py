"""Explains whether a pod's pending claims can be served: the scheduler's message, the groups of equal nodes, the claims that hold the
devices.

The decider (`allocator.decisions`) decides, and makes the messages, which are also those of events and refusals.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator import SearchOptions, allocate
from allocator.answer import SearchVerdict, Stage
from allocator.decisions import (
    Decider,
    NodeGroup,
    NodeReason,
    Outlook,
    Serving,
    advice,
    find_claims,
    find_unused,
    node_obstacle,
    plugin_nodes,
    try_out,
)
from allocator.pods import barriers_by_name, total
from allocator.preemption import claims_in_reach
from analysis.capacity import pods_of, since_of, unused_claims
from analysis.loading import inside, items
from dra import step_limits
from dra.budget import Budget
from dra.objects import served_resources
from dra.policy import lines_of_claims, quota_scope, quotas_for
from dra.stock import results_by_pool
from webhook.placement import Feasibility, can_any_node_serve
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from allocator.pods import Amounts, Barriers
    from analysis.loading import Reading
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock
    from webhook.state import Configuration

_MAX_GROUPS = 4  # groups of equal nodes; one node of each is judged
_MAX_HOLDERS = 16  # claims with devices of one node; of each, the release is tried
# Parts of kube-scheduler's messages about conditions that drawbridge does not check.
_OTHER_CONDITIONS = (
    "affinity rules",
    "topology spread constraints",
    "free ports",
    "persistentvolume",
    "PersistentVolume",
    "persistent volume",
    "volume count",
    "volume zone",
    "no available disk",
    "enough free storage",
    "pvc(s)",
    "required features",
    "scheduler-enforced",
    "unknown conditions",
)
_REACHED = "cannot allocate all claims"
_GATED = "SchedulingGated"
_CORDON = "node.kubernetes.io/unschedulable"
# The stages of a search at which candidates are lost because other claims hold devices.
_HELD = frozenset((Stage.IN_USE, Stage.GROUPS, Stage.COMPATIBILITY, Stage.COUNTERS, Stage.CAPACITY, Stage.SEARCH))


class Blocker(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that holds devices of a node which the pending claims need."""

    node: str
    claim: str
    pods: tuple[str, ...]
    devices: tuple[str, ...]
    since: str
    # Whether no existing pod uses the claim, so that deleting the claim frees its devices.
    is_unused: bool = msgspec.field(name="unused", default=False)
    # Whether the pod would fit if only this claim were freed; null if that was not tried or cannot be judged.
    freeing_suffices: bool | None = None


NO_NODE_READ = "it is unknown where the pod fits, because no Node was read"


class Prospect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the pending claims can be served, where, and what is in the way, with the message of the scheduler's events."""

    outlook: Outlook
    message: str = ""
    # Changes with which the pod would fit, the least harmful first.
    remedies: tuple[str, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    # Reasons other than devices that keep the pod off nodes.
    other_reasons: tuple[NodeReason, ...] = ()
    # Nodes whose device plugins have enough free devices for the pod's extended resources.
    plugins: tuple[str, ...] = ()


class QuotaUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of a DeviceQuota: its use, and what the pod would add."""

    line: str
    hard: str
    used: str
    requested: str
    remaining: str
    exceeded: bool


def prospect_of(pod: Pod, reading: Reading, configuration: Configuration) -> Prospect | None:
    """Return the prospect of a pod's pending claims; None if no claim is pending."""
    stock = reading.stock
    pod_claims = find_claims(pod, stock)
    if not pod_claims.waits_for and not pod_claims.open:
        return None
    decision = reading.decider.outlook(pod, stock)
    if pod_claims.waits_for:
        return Prospect(outlook=decision.outlook, message=decision.message)
    if not stock.nodes:
        return Prospect(outlook=Outlook.UNDECIDED, message=NO_NODE_READ)
    if decision.outlook is Outlook.FITS and not reading.knows_claims:
        last_message = scheduler_message(pod)
        message = "the claims of other namespaces cannot be read, so the free devices are not known"
        return Prospect(
            outlook=Outlook.UNDECIDED,
            message=f"{message}; the pod's scheduler says: {last_message}" if last_message else message,
        )
    used = reading.used if reading.knows_pods else {}
    barriers_on = barriers_by_name(pod, served_resources(pod, stock.serving()))
    by_plugin = plugin_nodes(pod, pod_claims, stock)
    plugins = tuple(
        [name for name in by_plugin if next(barriers_on(stock.nodes[name], used.get(name, {})), None) is None]
    )
    reachable = {name: node for name, node in stock.nodes.items() if not node_obstacle(pod_claims, node)}
    may_go = [name for name, node in reachable.items() if next(barriers_on(node, {}), None) is None]
    tried = try_out(pod_claims.open, stock, may_go or reachable)
    # Reasons other than devices that exclude nodes, the most frequent first.
    keeping: defaultdict[str, list[str]] = defaultdict(list)
    for name, node in stock.nodes.items():
        if why := " and ".join(map(": ".join, barriers_on(node, used.get(name, {})))):
            keeping[why].append(name)
    barriers = [NodeReason(why, tuple(names)) for why, names in keeping.items()]
    barriers.sort(key=lambda barrier: -barrier.count)
    barred = {name for barrier in barriers for name in barrier.nodes}
    message = decision.message
    certain = not unchecked_conditions(pod, reading)
    remedies: list[str] = []
    blockers: list[Blocker] = []
    if decision.outlook is not Outlook.FITS:
        without_gone_pods = _without_gone_pods(reading)
        if may_go:
            blockers += _blockers(tried, pod_claims.open, barriers_on, reading, without_gone_pods, certain=certain)
        if any(blocker.freeing_suffices for blocker in blockers) or (certain and not barred.issuperset(may_go)):
            remedies += filter(None, (advice(pod, without_gone_pods, decision.reasons, used),))
        if decision.outlook is Outlook.NEVER and may_go and not barred.issuperset(may_go):
            judgement = can_any_node_serve(stock, pod_claims.open, prospects=reading.state(configuration).prospects)
            if judgement.verdict is Feasibility.BUSY:  # a node that an autoscaler can add could serve the pod
                decision, message, remedies = replace(decision, outlook=Outlook.FULL), judgement.text, []
            if judgement.code is Code.NO_DEVICE:  # this reason lists the existing devices
                message, remedies = judgement.detail, [judgement.remedy]
        if barriers and barred.issuperset(may_go):
            causes = "; ".join(f"{barrier.count} {barrier.message}" for barrier in barriers[:_MAX_GROUPS])
            message = f"{causes}; besides, {message}" if may_go else causes
    frees_dead_claim = any(blocker.is_unused and blocker.freeing_suffices for blocker in blockers)
    if certain and not plugins and not any(group.devices and not barred.issuperset(group.nodes) for group in tried):
        cordoned = [
            f"uncordon node {name}, whose devices are free"
            for name in _idle_if_uncordoned(stock, pod_claims.open, barriers_on, used)
        ]
        remedies = [*remedies, *cordoned] if frees_dead_claim else [*cordoned, *remedies]
    return Prospect(
        outlook=decision.outlook,
        message=message,
        remedies=tuple(remedies),
        groups=tried,
        blockers=tuple(blockers),
        other_reasons=tuple(barriers),
        plugins=plugins,
    )


def _idle_if_uncordoned(
    stock: Stock, claims: tuple[ResourceClaim, ...], barriers_on: Barriers, used: Mapping[str, Amounts]
) -> list[str]:
    """Return cordoned nodes with free devices for the claims that the pod could use if they were not cordoned."""
    options = SearchOptions(budget=Budget(step_limits.BLOCKERS))
    idle: list[str] = []
    for name, node in stock.nodes.items():
        if node.spec.unschedulable and len(idle) < _MAX_GROUPS:
            taints = tuple([taint for taint in node.spec.taints if taint.key != _CORDON])
            uncordoned = replace(node, spec=replace(node.spec, unschedulable=False, taints=taints))
            may_run = next(barriers_on(uncordoned, used.get(name, {})), None) is None
            if may_run and allocate(stock, name, claims, options=options).feasible:
                idle.append(name)
    return idle


def _blockers(
    tried: Iterable[NodeGroup],
    claims: tuple[ResourceClaim, ...],
    barriers_on: Barriers,
    reading: Reading,
    without_gone_pods: Stock,
    *,
    certain: bool,
) -> Iterator[Blocker]:
    """Yield the claims that hold devices which the pending `claims` need, on one node of each of the largest groups.

    If a claim that no pod uses holds devices of a node of the group, it is that node, if possible one with room for the pod. Such claims come
    first, then the oldest.

    For the first of them, `freeing_suffices` tells whether freeing that one is enough: the pending claims then fit, and the pod fits beside
    the remaining pods. It is None if this cannot be judged.
    """
    stock = reading.stock
    used = reading.used if reading.knows_pods else {}
    options = SearchOptions(budget=Budget(step_limits.BLOCKERS))
    in_use = {key for key, claim in without_gone_pods.claims.items() if claim.status.reserved_for}
    has_unused = find_unused(without_gone_pods)
    examined_nodes = 0
    for group in tried:
        if examined_nodes == _MAX_GROUPS or group.verdict is not SearchVerdict.INFEASIBLE:
            continue
        if _HELD.isdisjoint(stage.stage for stage in group.stages):
            continue
        with_unused = list(filter(has_unused, group.nodes))
        with_room = (
            name for name in with_unused if next(barriers_on(stock.nodes[name], used.get(name, {})), None) is None
        )
        node = next(with_room, (*with_unused, *group.nodes)[0])
        # The drivers of the devices that would be allocated if all devices were free.
        answer = allocate(reading.idle, node, claims, options=options)
        drivers = {result.driver for result in answer.results}
        if not drivers:
            continue
        examined_nodes += 1
        pools = {pool.id for pool in stock.pools(node)}
        examined = 0
        for key in sorted(
            claims_in_reach(node, stock), key=lambda key: (key in in_use, since_of(stock.claims[key]), key)
        ):
            claim = stock.claims[key]
            devices: list[str] = []
            for pool, results in results_by_pool(claim).items():
                if pool in pools and pool[0] in drivers:
                    devices += ["/".join((*pool, result.device)) for result in results]
            if not devices:
                continue
            suffices = None
            if examined < _MAX_HOLDERS:
                examined += 1
                answer = allocate(stock.without("ResourceClaim", key), node, claims, options=options)
                ending = total(reading.pods[name] for name in pods_of(claim) if name in reading.pods).get(node, {})
                remaining_use = {name: amount - ending.get(name, 0) for name, amount in used.get(node, {}).items()}
                suffices = answer.feasible and next(barriers_on(stock.nodes[node], remaining_use), None) is None
                if answer.verdict is SearchVerdict.UNDECIDED or (suffices and not certain):
                    suffices = None
            yield Blocker(
                node=node,
                claim=key,
                pods=pods_of(claim),
                is_unused=key not in in_use,
                devices=tuple(devices),
                since=since_of(claim),
                freeing_suffices=suffices,
            )


def _without_gone_pods(reading: Reading) -> Stock:
    """Return the stock in which claims are reserved for no pod that is gone, so that the advice is to delete claims that no pod uses."""
    unused = [reading.stock.claims[key] for key in unused_claims(reading)]
    return reading.stock.with_all([replace(claim, status=replace(claim.status, reserved_for=())) for claim in unused])


def scheduler_message(pod: Pod) -> str:
    """Return why the scheduler found no node for a pod at its last attempt, without the result of preemption."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason != _GATED:
            return (condition.message or condition.reason).partition(" preemption: ")[0].rstrip(", ")
    return ""


def unchecked_conditions(pod: Pod, reading: Reading) -> str:
    """Return the conditions that only kube-scheduler checks: those in the scheduler's message, else those in the pod's spec."""
    last_message = scheduler_message(pod)
    if any(words in last_message for words in _OTHER_CONDITIONS):
        return last_message
    if _REACHED in last_message:
        return ""  # kube-scheduler checks devices last, so these nodes have passed all other filters
    spec = inside(reading.raw.get(pod.metadata.key, {}), "spec")
    affinity = inside(spec, "affinity")
    has = {
        "inter-pod affinity": any(
            inside(affinity, kind).get("requiredDuringSchedulingIgnoredDuringExecution")
            for kind in ("podAffinity", "podAntiAffinity")
        ),
        "topology spread": any(
            item.get("whenUnsatisfiable") == "DoNotSchedule" for item in items(spec, "topologySpreadConstraints")
        ),
        "volumes": any("persistentVolumeClaim" in item or "ephemeral" in item for item in items(spec, "volumes")),
        "host ports": any(
            item.get("hostPort") for container in items(spec, "containers") for item in items(container, "ports")
        ),
    }
    return ", ".join(kind for kind, present in has.items() if present)


def quota_of(pod: Pod, prospect: Prospect | None, reading: Reading) -> tuple[QuotaUse, ...]:
    """Return the use of the quotas that cover a pod, and what its pending claims would add."""
    stock = reading.stock
    quotas = quotas_for(reading.quotas, quota_scope(pod))
    if not quotas:
        return ()
    # The allocations that the claims would get on the first node that can serve them.
    allocated: tuple[ResourceClaim, ...] = ()
    if prospect is not None and prospect.outlook is Outlook.FITS:
        nodes = [group.nodes[0] for group in prospect.groups if group.verdict is SearchVerdict.FEASIBLE]
        serving = Decider().serve(pod, nodes[0], stock) if nodes else None
        allocated = serving.allocated_claims() if isinstance(serving, Serving) else ()
    lines = lines_of_claims(quotas, pod, allocated, stock, reading.find_pod, unrequested=True)
    return tuple(msgspec.convert({**line.facts(), "exceeded": line.exceeded}, QuotaUse) for line in lines)
