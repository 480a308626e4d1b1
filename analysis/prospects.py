"""Explains whether a pod's pending claims can be served: the reason, the groups of equal nodes, and the way out.

The decider (`allocator.decisions`) decides, and makes the reasons, which are also those of events.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.answer import SearchVerdict
from allocator.decisions import (
    NodeGroup,
    Outlook,
    Placed,
    by_answer,
    find_claims,
    node_obstacle,
    place,
    plugin_nodes,
)
from allocator.pods import barriers_by_name
from allocator.reasons import by_text
from analysis.loading import identity_of, inside, items, text
from analysis.way_out import Degree, WayOut, find_way_out
from dra.objects import served_resources
from dra.policy import lines_of_claims, quota_scope, quotas_for
from dra.reason import Actor, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Reading
    from dra.objects import Pod, ResourceClaim

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

STOCK = "default-scheduler"
# Words of kube-scheduler about volumes, and about a PersistentVolumeClaim that does not exist.
ABOUT_VOLUMES = re.compile(r"volume|pvc\(s\)|available disk|enough free storage", re.IGNORECASE)
_IN_USE = re.compile(r"cannot allocate all claims|Insufficient |Too many pods")  # other pods can free these
_MISSING_VOLUME = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
NO_NODE_READ = "it is unknown where the pod fits, because no Node was read"


class Prospect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the pending claims can be served, where, and what is in the way."""

    outlook: Outlook
    # What keeps the pod from running, and what would help; None if a node has room for it.
    way_out: WayOut | None = None
    # Why each node cannot serve the claims, with the text of the scheduler's events.
    reason: Reason = Reason(text="")
    groups: tuple[NodeGroup, ...] = ()
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
    tried = by_answer(reading.decider.search_fleet(stock, pod_claims.open), may_go or reachable)
    # Reasons other than devices that exclude nodes, the most frequent first.
    keeping: dict[str, str] = {}
    for name, node in stock.nodes.items():
        if why := " and ".join(map(str, barriers_on(node, used.get(name, {})))):
            keeping[name] = why
    barriers = by_text(keeping)
    barred = frozenset(keeping)
    has_room = plugins or any(group.devices and not barred.issuperset(group.nodes) for group in tried)
    way_out = None
    if not has_room and decision.outlook is not Outlook.UNDECIDED:
        way_out = find_way_out(pod, pod_claims, reading)
        if unchecked_conditions(pod, reading):  # the pod may have to wait for these, too
            way_out = way_out.without_remedies()
        if decision.outlook is Outlook.NEVER and way_out.degree is not Degree.NEVER:
            decision = replace(decision, outlook=Outlook.FULL)
    return Prospect(
        outlook=decision.outlook,
        way_out=way_out,
        reason=decision.reason,
        groups=tried,
        other_reasons=barriers,
        plugins=plugins,
    )


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


def volume_faults(pod: Pod, reading: Reading) -> Iterator[Reason]:
    """Yield why no node can use a volume of a pod: it does not exist, is not bound, or is elsewhere. Only kube-scheduler checks volumes."""
    last_message = scheduler_message(pod)
    if not ABOUT_VOLUMES.search(last_message) or _IN_USE.search(last_message):
        return
    namespace = pod.metadata.namespace or "default"
    spec = inside(reading.raw.get(pod.metadata.key, {}), "spec")
    named = {text(inside(volume, "persistentVolumeClaim").get("claimName")) for volume in items(spec, "volumes")}
    unbound: list[str] = []
    for obj in reading.of_kinds("PersistentVolumeClaim"):
        name = identity_of(obj)
        if name.namespace == namespace and name.name in named and inside(obj, "status").get("phase") == "Pending":
            unbound.append(f"PersistentVolumeClaim/{name.namespace}/{name.name}")
    message = f"{pod.spec.scheduler_name or STOCK} says: {last_message}"
    if unbound:
        message = f"{message}; {', '.join(unbound)} is Pending"
    remedies = [f"see why {name} is not bound (kubectl describe pvc)" for name in unbound]
    if missing := _MISSING_VOLUME.search(last_message):
        absent = f"PersistentVolumeClaim {namespace}/{missing[1]}"
        remedies.append(f"create {absent}, or correct the name in the pod's volumes")
    yield Reason(code="O118", actor=Actor.USER, text=message, causes=tuple(unbound), remedies=tuple(remedies))


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
