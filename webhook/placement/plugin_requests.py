"""Judges a pod's requests of device plugins: whether a node could ever serve them.

A resource is judged if a dialect (a device plugin's vocabulary) has it, no claim replaces it, and no DeviceClass serves it. The table is about
the nodes that the pod's nodeSelector, node affinity and nodeName allow; taints are ignored:

| what the node has, in `status.capacity` or `allocatable` | what follows |
|---|---|
| enough of each resource | the node can serve the pod, now or later |
| some of a resource, but less than the pod requests | the node can never serve the pod |
| 0 of a resource, or only some of several resources | unknown: the node's device plugin may only be starting |
| none of the resources | nothing |

A pod is refused if all nodes with such a resource are of the second row, and if no declared node (`nodeTemplates`) could serve it. The kubelet
compares the same numbers, so no scheduler could place the pod. `capacity` includes unhealthy devices; `allocatable` does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from allocator.pods import most_of, requests
from dra import wire
from dra.errors import QuantityError
from dra.objects import Pod, is_extended, requests_of
from dra.quantity import NANO
from dra.raw import mapping
from dra.reason import Reason
from dra.wire import WireError
from webhook.dialects import REPLACED
from webhook.placement.problems import NO_PROBLEMS, MayServe, Problems, denied
from webhook.refusals import Code, none_could
from webhook.state import node_constraints, reach_ignoring_taints, reach_templates
from webhook.translate import MIRROR, find_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dra.budget import Budget
    from dra.objects import Container, Node
    from dra.wire import Json
    from webhook.state import State
    from webhook.translate import Decision

_SEVERAL = "the pod's containers"


class PluginRequest(msgspec.Struct, frozen=True):
    """The amounts that a pod requests of device plugins, in nano-units, and the constraints on the pod's node."""

    amounts: Mapping[str, int]
    # By resource: the first container that requests it, and the subject of the sentence about the request.
    users: Mapping[str, str]
    subjects: Mapping[str, str]
    constraints: Mapping[str, Any]

    def asks(self, key: str) -> str:
        verb = "together request" if self.subjects[key] == _SEVERAL else "requests"
        return f"{self.subjects[key]} {verb} {self.amounts[key] // NANO} {key}"


def plugin_request(pod: dict[str, Json], state: State, decisions: Iterable[Decision] = ()) -> PluginRequest | None:
    """Return a pod's requests of device plugins, without the keys that claims replace; None if there is nothing to judge."""
    fleet = state.fleet
    if not (state.confirmed and fleet.known):
        return None
    removed = {(decision.container, decision.key) for decision in decisions if decision.outcome in REPLACED}
    names = [
        name
        for name in find_names(pod, fleet.handed_out_anywhere, removed)
        if is_extended(name) and name not in fleet.extended and state.configuration.resource(name)
    ]
    metadata = mapping(pod.get("metadata"))
    if not names or MIRROR in mapping(metadata.get("annotations")):
        return None
    try:
        typed = wire.convert(pod, Pod)
        spec = replace(
            typed.spec,
            init_containers=_without(typed.spec.init_containers, removed),
            containers=_without(typed.spec.containers, removed),
        )
        pod_amounts = requests(replace(typed, spec=spec))
    except (WireError, QuantityError):
        return None
    scheduler = state.configuration.schedulers.get(spec.scheduler_name or "default-scheduler")
    # The webhook of another scheduler may still change the pod, unless nodeName is set.
    if not spec.node_name and (scheduler is None or not scheduler.like_cluster):
        return None
    amounts = {name: pod_amounts[name] for name in sorted(names) if pod_amounts.get(name, 0) > 0}
    users: dict[str, str] = {}
    subjects: dict[str, str] = {}
    for container in spec.all_containers:
        container_amounts = requests_of(container)
        for name in amounts.keys() & container_amounts.keys():
            users.setdefault(name, container.name)
            if container_amounts[name].nano >= amounts[name]:
                subjects.setdefault(name, f"container {container.name}")
    subjects = dict.fromkeys(amounts, _SEVERAL) | subjects
    return PluginRequest(amounts, users, subjects, node_constraints(mapping(pod.get("spec")))) if amounts else None


def _without(containers: tuple[Container, ...], removed: Collection[tuple[str, str]]) -> tuple[Container, ...]:
    """Remove the replaced keys from their containers."""
    stripped: list[Container] = []
    for container in containers:
        parts = {
            part: {key: amount for key, amount in amounts.items() if (container.name, key) not in removed}
            for part, amounts in (("limits", container.resources.limits), ("requests", container.resources.requests))
        }
        stripped.append(replace(container, resources=replace(container.resources, **parts)))
    return tuple(stripped)


def judge_plugin_request(request: PluginRequest | None, state: State, budget: Budget) -> Problems:
    """Judge a pod's requests of device plugins; NO_PROBLEMS if there are none."""
    if request is None:
        return NO_PROBLEMS
    fleet, uses = state.fleet, state.uses
    nodes = state.stock.nodes if state.stock is not None else fleet.nodes
    reached = reach_ignoring_taints(request.constraints, state, budget)
    too_small: list[Node] = []
    busy_nodes: list[Node] = []
    # Nodes with all of the resources come first, because the first of them usually has enough.
    nodes_with_all = frozenset.intersection(
        *[fleet.handed_out_anywhere.get(key, frozenset()) for key in request.amounts]
    )
    for names in (nodes_with_all & reached, reached - nodes_with_all):
        for name in names:
            budget.charge()
            node = nodes.get(name)
            if node is None or not (listed_keys := [key for key in request.amounts if _lists(node, key)]):
                continue
            if any(0 < most_of(node, key) < request.amounts[key] for key in listed_keys):
                too_small.append(node)
                continue
            used = uses.get(name, {}) if uses is not None and name in nodes_with_all else None
            if used is None or all(_free_amount(node, key, used) >= amount for key, amount in request.amounts.items()):
                return NO_PROBLEMS
            busy_nodes.append(node)
    # A node that is not in the inventory yet may be larger than all others.
    if not (too_small or busy_nodes) or not nodes.keys() <= fleet.nodes.keys() or _autoscaler_can_serve(request, state):
        return NO_PROBLEMS
    if busy_nodes:
        return Problems(warnings=(_busy_text(request, busy_nodes, uses or {}),))
    return _never(request, too_small, nodes)


def _lists(node: Node, key: str) -> bool:
    return key in node.status.allocatable or key in node.status.capacity


def _free_amount(node: Node, key: str, used: Mapping[str, int]) -> int:
    return node.status.allocatable[key].nano - used.get(key, 0)


def _autoscaler_can_serve(request: PluginRequest, state: State) -> bool:
    """Return whether a node that an autoscaler can create (`nodeTemplates`) has enough of each resource."""
    return any(
        all(key in have and have[key].nano >= amount for key, amount in request.amounts.items())
        for have in [template.allocatable for template in reach_templates(request.constraints, state.configuration)]
    )


def _busy_text(request: PluginRequest, busy_nodes: list[Node], uses: Mapping[str, Mapping[str, int]]) -> str:
    free: dict[str, tuple[int, str]] = {}
    for key in request.amounts:
        free_by_node = {
            node.metadata.name: _free_amount(node, key, uses.get(node.metadata.name, {})) for node in busy_nodes
        }
        freest = min(free_by_node, key=lambda name: (-free_by_node[name], name))
        free[key] = free_by_node[freest], freest
    key = next((key for key, (most, _) in free.items() if most < request.amounts[key]), next(iter(free)))
    most, node = free[key]
    others = ", and no other node has more" if len(busy_nodes) > 1 else ""
    where = f"the device plugin on node {node} has {max(0, most) // NANO} left{others}"
    return f"this pod waits until devices are free: {request.asks(key)}, but {where}"


def _never(request: PluginRequest, too_small: list[Node], nodes: Mapping[str, Node]) -> Problems:
    opening = none_could(len(nodes), "pod")
    for key, amount in request.amounts.items():
        largest, most = _largest(key, too_small)
        if not 0 < most < amount:
            continue
        where = "in total" if request.subjects[key] == _SEVERAL else f"in {request.subjects[key]}"
        remedy = f"request at most {most // NANO} {where}"
        largest_anywhere, most_anywhere = _largest(key, nodes.values())
        if most_anywhere < amount:
            offers = f"no device plugin offers more than {most_anywhere // NANO} (node {largest_anywhere})"
            text = f"{opening}: {request.asks(key)}, but {offers}"
            return denied(
                Reason(text=text, code=Code.TOO_MANY, remedies=(remedy,)),
                request.users.get(key, ""),
                key,
                MayServe.NEW_NODE,
            )
        offers = f"no device plugin on a node that the pod can run on offers more than {most // NANO} (node {largest})"
        other = f"node {largest_anywhere} offers {most_anywhere // NANO}, but the pod cannot run there"
        return _beyond(request, key, f"{opening}: {request.asks(key)}, but {offers}; {other}", remedy)
    # For each resource some node has enough, but no node has enough of all resources.
    node = min(too_small, key=lambda candidate: candidate.metadata.name)
    requested = " and ".join([request.asks(key) for key in request.amounts])
    has = " and ".join([f"{most_of(node, key) // NANO} {key}" for key in request.amounts if _lists(node, key)])
    text = f"{opening}: {requested}, but no node that the pod can run on has enough of each; node {node.metadata.name} has {has}"
    return _beyond(request, next(iter(request.amounts)), text)


def _beyond(request: PluginRequest, key: str, text: str, *remedies: str) -> Problems:
    """Refuse a pod that at most nodes where it cannot run could serve."""
    may_serve = MayServe.NEW_NODE | MayServe.UNREACHED
    return denied(Reason(text=text, code=Code.NEVER, remedies=remedies), request.users.get(key, ""), key, may_serve)


def _largest(key: str, nodes: Iterable[Node]) -> tuple[str, int]:
    amounts = [(most_of(node, key), node.metadata.name) for node in nodes if _lists(node, key)]
    most = max([amount for amount, _ in amounts], default=0)
    return min([name for amount, name in amounts if amount == most], default=""), most
