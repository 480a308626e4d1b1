"""Explains whether a pod's pending claims can be served: the reason, the groups of equal nodes, the claims that hold the devices.

The decider (`allocator.decisions`) decides, and makes the reasons, which are also those of events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator import SearchOptions, allocate, fleet
from allocator.answer import SearchVerdict, Stage
from allocator.decisions import (
    NodeGroup,
    Outlook,
    Placed,
    advice,
    find_claims,
    find_unused,
    node_obstacle,
    place,
    plugin_nodes,
    try_out,
)
from allocator.pods import barriers_by_name, total
from allocator.preemption import claims_in_reach
from allocator.reasons import by_text
from analysis.capacity import pods_of, since_of, unused_claims
from analysis.loading import inside, items
from dra import step_limits
from dra.objects import served_resources
from dra.policy import lines_of_claims, quota_scope, quotas_for
from dra.reason import Harm, Reason, by_harm
from dra.stock import results_by_pool
from dra.texts import list_first
from webhook.placement import Feasibility, can_any_node_serve
from webhook.refusals import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from allocator.pods import Amounts, Barriers
    from analysis.loading import Reading
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock

_MAX_GROUPS = 4  # groups of equal nodes; one node of each is judged
_NAMED = 3  # devices and pods that a text names
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
# The stages of a search at which candidates are lost because other claims hold devices.
_HELD = frozenset((Stage.IN_USE, Stage.GROUPS, Stage.COMPATIBILITY, Stage.COUNTERS, Stage.CAPACITY, Stage.SEARCH))


NO_NODE_READ = "it is unknown where the pod fits, because no Node was read"


class Prospect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the pending claims can be served, where, and what is in the way."""

    outlook: Outlook
    # Why they cannot be served, with the text of the scheduler's events; its remedies are changes with which the pod would fit.
    reason: Reason = Reason(text="")
    groups: tuple[NodeGroup, ...] = ()
    # The claims that hold devices of a node which the pending claims need. Each has a remedy if the pod would fit once only this claim were freed.
    blockers: tuple[Reason, ...] = ()
    # Reasons other than devices that keep the pod off nodes.
    other_reasons: tuple[Reason, ...] = ()
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


def prospect_of(pod: Pod, reading: Reading) -> Prospect | None:
    """Return the prospect of a pod's pending claims; None if no claim is pending."""
    stock = reading.stock
    pod_claims = find_claims(pod, stock)
    if pod_claims.waits_for is not None:
        return Prospect(outlook=Outlook.WAITING, reason=pod_claims.waits_for)
    if not pod_claims.open:
        return None
    decision = reading.decider.outlook(pod, stock)
    if not stock.nodes:
        return Prospect(outlook=Outlook.UNDECIDED, reason=Reason(text=NO_NODE_READ))
    if decision.outlook is Outlook.FITS and not reading.knows_claims:
        last_message = scheduler_message(pod)
        text = "the claims of other namespaces cannot be read, so the free devices are not known"
        text = f"{text}; the pod's scheduler says: {last_message}" if last_message else text
        return Prospect(outlook=Outlook.UNDECIDED, reason=Reason(text=text))
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
    keeping: dict[str, str] = {}
    for name, node in stock.nodes.items():
        if why := " and ".join(map(str, barriers_on(node, used.get(name, {})))):
            keeping[name] = why
    barriers = by_text(keeping)
    barred = frozenset(keeping)
    all_barred = barred.issuperset(may_go)
    reason = decision.reason
    certain = not unchecked_conditions(pod, reading)
    remedies: list[tuple[Harm, str]] = []
    blockers: list[tuple[Harm, Reason]] = []
    if decision.outlook is not Outlook.FITS:
        without_gone_pods = _without_gone_pods(reading)
        if may_go:
            blockers += _blockers(tried, pod_claims.open, barriers_on, reading, without_gone_pods, certain=certain)
        is_enough = any(blocker.remedies for _, blocker in blockers)
        if (is_enough or (certain and not all_barred)) and (
            change := advice(pod, without_gone_pods, decision.reasons, used)
        ):
            remedies.append(change)
        if decision.outlook is Outlook.NEVER and may_go and not all_barred:
            judgement = can_any_node_serve(stock, pod_claims.open, prospects=reading.state.prospects)
            if judgement.verdict is Feasibility.BUSY:  # a node that an autoscaler can add could serve the pod
                decision, reason, remedies = replace(decision, outlook=Outlook.FULL), Reason(text=judgement.text), []
            if judgement.code is Code.NO_DEVICE:  # this reason lists the existing devices
                reason, remedies = replace(reason, text=judgement.text), [(Harm.NONE, judgement.remedy)]
        if barriers and all_barred:
            causes = "; ".join(f"{len(barrier.nodes)} {barrier.text}" for barrier in barriers[:_MAX_GROUPS])
            reason = replace(reason, text=f"{causes}; besides, {reason.text}" if may_go else causes)
    if certain and not plugins and not any(group.devices and not barred.issuperset(group.nodes) for group in tried):
        changes = _changes(stock, barriers_on, used)
        remedies += _openings(reading, pod_claims.open, changes, idle=False, ending="whose devices are free")
        if not remedies:
            remedies += _openings(
                reading, pod_claims.open, changes, idle=True, ending="and end pods that hold its devices"
            )
    return Prospect(
        outlook=decision.outlook,
        reason=replace(reason, remedies=by_harm(remedies)),
        groups=tried,
        blockers=tuple([blocker for _, blocker in blockers]),
        other_reasons=barriers,
        plugins=plugins,
    )


def _changes(stock: Stock, barriers_on: Barriers, used: Mapping[str, Amounts]) -> dict[str, str]:
    """Return the changes with which the pod could run on nodes that it cannot use now, if their devices are free."""
    changes: dict[str, str] = {}
    for name, node in stock.nodes.items():
        own = [barrier.remedy for barrier in barriers_on(node, used.get(name, {}))]
        if own and None not in own:
            changes[name] = " and ".join(remedy(name) for remedy in own if remedy)
    return changes


def _openings(
    reading: Reading, claims: tuple[ResourceClaim, ...], changes: Mapping[str, str], *, idle: bool, ending: str
) -> list[tuple[Harm, str]]:
    """Return the changes of nodes that have devices for the claims, or would have with `idle` devices."""
    options = SearchOptions(budget=reading.work.part(step_limits.BLOCKERS))
    able = [name for name in fleet(reading.stock, claims, options=options, idle=idle).feasible if name in changes]
    return [(Harm.IDLE_NODE, f"{changes[name]}, {ending}") for name in able[:_MAX_GROUPS]]


def _blockers(
    tried: Iterable[NodeGroup],
    claims: tuple[ResourceClaim, ...],
    barriers_on: Barriers,
    reading: Reading,
    without_gone_pods: Stock,
    *,
    certain: bool,
) -> Iterator[tuple[Harm, Reason]]:
    """Yield the claims that hold devices which the pending `claims` need, on one node of each of the largest groups.

    If a claim that no pod uses holds devices of a node of the group, it is that node, if possible one with room for the pod. Each claim comes with
    the harm of freeing it: the least harmful come first, then the oldest. The first have a remedy if freeing that one is enough: the pending
    claims then fit, and the pod fits beside the remaining pods.
    """
    stock = reading.stock
    used = reading.used if reading.knows_pods else {}
    options = SearchOptions(budget=reading.work.part(step_limits.BLOCKERS))
    in_use = {key for key, claim in without_gone_pods.claims.items() if claim.status.reserved_for}
    has_unused = find_unused(without_gone_pods)

    def harm_of(key: str) -> Harm:
        if key not in in_use:
            return Harm.NONE
        pods = [reading.pods.get(name) for name in pods_of(stock.claims[key])]
        return Harm.LIVE_POD if any(pod is None or pod.status.phase == "Running" for pod in pods) else Harm.IDLE_POD

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
        holders = [(harm_of(key), since_of(stock.claims[key]), key) for key in claims_in_reach(node, stock)]
        for harm, since, key in sorted(holders):
            claim = stock.claims[key]
            devices: list[str] = []
            for pool, results in results_by_pool(claim).items():
                if pool in pools and pool[0] in drivers:
                    devices += ["/".join((*pool, result.device)) for result in results]
            if not devices:
                continue
            remedies: tuple[str, ...] = ()
            pods = pods_of(claim)
            if examined < _MAX_HOLDERS:
                examined += 1
                answer = allocate(stock.without("ResourceClaim", key), node, claims, options=options)
                ending = total(reading.pods[name] for name in pods if name in reading.pods).get(node, {})
                remaining_use = {name: amount - ending.get(name, 0) for name, amount in used.get(node, {}).items()}
                has_room = next(barriers_on(stock.nodes[node], remaining_use), None) is None
                if answer.feasible and has_room and certain:
                    remedies = ("delete it" if harm is Harm.NONE else "end its pods",)
            reserved = f" for {list_first(pods, _NAMED)}" if pods else ", reserved for no pod,"
            held = list_first(devices, _NAMED)
            yield (
                harm,
                Reason(
                    text=f"claim {key} holds {held} of node {node}{reserved}{f' since {since}' if since else ''}",
                    causes=(f"ResourceClaim/{key}", *[f"Pod/{name}" for name in pods], f"Node/{node}"),
                    remedies=remedies,
                ),
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
        allocated = place([[(pod, node)] for node in nodes[:1]], Placed(stock)).granted(pod)
    lines = lines_of_claims(quotas, pod, allocated, stock, reading.find_pod, unrequested=True)
    return tuple(msgspec.convert({**line.facts(), "exceeded": line.exceeded}, QuotaUse) for line in lines)
