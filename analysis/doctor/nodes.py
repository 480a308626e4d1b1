"""Findings about nodes: their state, the reports of their audit agents, and taints and conditions that no agent renews any more."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from analysis.doctor.observed import MAX_NAMED, DoctorInput
from analysis.doctor.repair import ConditionRemoval, Removal
from analysis.unserved_nodes import keys_of_nodes
from cluster.objects import Event
from dra.finding import Finding, make_finding
from dra.objects import claim_keys
from dra.raw import Object, inside, items, moment, text
from dra.texts import list_first
from node.audit import CONDITION, FINDING_ENDED, MARKED_ON, FindingKind, condition_on, renewed_at, seen_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.doctor.repair import Repairable

_FRESH = timedelta(minutes=20)  # an audit agent repeats its events every ten minutes
_CODE_OF_REASON = {kind.reason: kind.code for kind in FindingKind}
_STALE_AFTER = timedelta(minutes=30)  # an audit agent renews its taints and its condition every ten minutes


def nodes_away(observed: DoctorInput) -> Iterator[Finding]:
    """Nodes that have devices and are not ready: their free devices cannot be used, and held devices are not released."""
    published = {piece.spec.node_name for piece in observed.reading.stock.slices.values()}
    for node, condition in _unready(observed.reading.of_kinds("Node")):
        node_pods = [pod for pod in observed.reading.pods.values() if pod.spec.node_name == node and not pod.has_ended]
        claims = {key: None for pod in node_pods for key in claim_keys(pod)}
        if not claims and node not in published:
            continue
        keeps = (
            f"claims {list_first(list(claims), MAX_NAMED)} keep its devices" if claims else "no pod on it has a claim"
        )
        unready_since, reason = text(condition.get("lastTransitionTime")), text(condition.get("reason"))
        since, why = f" since {unready_since}" if unready_since else "", f" ({reason})" if reason else ""
        yield make_finding(
            "O201",
            f"Node/{node}",
            f"it is not ready{since}{why}, and {keeps}",
            f"look at the node's kubelet; if the node is lost, delete the Node, or let Kubernetes delete its pods: `kubectl taint node {node} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`",
        )


def _unready(nodes: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """Yield each node that is not ready, with its condition Ready."""
    for node in nodes:
        for item in items(inside(node, "status"), "conditions"):
            if item.get("type") == "Ready" and item.get("status") != "True":
                yield text(inside(node, "metadata").get("name")), item


def on_both(observed: DoctorInput) -> Iterator[Finding]:
    """Nodes on which a device plugin and a driver serve the same devices."""
    for key_nodes in keys_of_nodes(observed.reading):
        for node in key_nodes.both:
            message = f"a device plugin serves {key_nodes.key}, and a driver publishes the same devices: two pods could get the same device"
            yield make_finding("O202", f"Node/{node}", message)


def without_node(observed: DoctorInput) -> Iterator[Finding]:
    """Slices with the devices of nodes that do not exist."""
    nodes = observed.reading.stock.nodes
    for piece in observed.reading.stock.slices.values():
        name = piece.spec.node_name
        if name and name not in nodes:
            yield make_finding(
                "O204",
                f"ResourceSlice/{piece.metadata.name}",
                f"it has the devices of node {name}, which does not exist, so no pod can use them",
                f"kubectl delete resourceslice {piece.metadata.name}; a driver can avoid this if it makes the Node the owner of its slices: then Kubernetes deletes them with the Node",
            )


def reported_by_agents(observed: DoctorInput) -> Iterator[Finding]:
    """Contradictions that audit agents report about their nodes, unless they have ended."""
    for event in observed.reading.typed.of_type(Event):
        subject = event.involved_object
        code = _CODE_OF_REASON.get(event.reason)
        if code is None or subject.kind != "Node" or event.message == FINDING_ENDED:
            continue
        last = moment(event.last_timestamp)
        if last is not None and observed.now - last <= _FRESH:
            basis = "an event of the node's audit agent"
            yield make_finding(code, f"Node/{subject.name}", event.message, basis=basis)


def stale_marks(observed: DoctorInput) -> Iterator[Repairable]:
    """Taints of devices that no audit agent renews any more."""
    for rule in observed.reading.stock.rules.values():
        meta = rule.metadata
        renewed = seen_at(rule)
        if MARKED_ON not in meta.labels or (renewed is not None and observed.now - renewed <= _STALE_AFTER):
            continue
        owners = ", ".join(owner.name for owner in meta.owner_references) or "(unknown)"
        finding = make_finding(
            "O213",
            f"DeviceTaintRule/{meta.name}",
            f"it keeps claims off a device of node {owners}, and no audit agent renews it any more",
        )
        yield finding, Removal("DeviceTaintRule", "", meta.name, meta.uid, meta.resource_version)


def stale_conditions(observed: DoctorInput) -> Iterator[Repairable]:
    """Conditions of nodes that no audit agent renews any more."""
    for node in observed.reading.of_kinds("Node"):
        condition = condition_on(node)
        renewed = renewed_at(condition) if condition is not None else None
        if condition is None or (renewed is not None and observed.now - renewed <= _STALE_AFTER):
            continue
        name = node["metadata"]["name"]
        finding = make_finding(
            "O214",
            f"Node/{name}",
            f"it has {CONDITION}={condition.get('status')}, which no audit agent has renewed for half an hour",
        )
        yield finding, ConditionRemoval(name, node["status"]["conditions"].index(condition), condition)
