"""Reads which nodes of a mixed fleet the configuration prefers for a pod (`mixed`).

A policy in `mixed` is for one resource, which device plugins serve on some nodes and a DeviceClass on others. Without a policy, claims are
preferred. `webhook.placement.choice` decides which nodes can serve the pod and have free devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocator.pods import requests
from dra.errors import QuantityError
from dra.objects import NodeSelector, Pod
from dra.wire import Wire, WireError, convert
from webhook.state import node_constraints

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dra.wire import Json
    from webhook.state import MixedFleet, PodOwner, PreferredNodes, State

_WITH_DRIVER, _WITH_PLUGIN = "nodes with a driver", "nodes with a device plugin"


class Preference(Wire, frozen=True, kw_only=True):
    """The nodes that a pod prefers, and what a node must have for the pod."""

    by_claims: bool  # prefers nodes with a driver, on which claims get the devices; else nodes with a device plugin
    why: str
    # The resources that device plugins must have on one node, in billionths.
    needs: dict[str, int]
    # The other resources that a node must have, in billionths.
    other_requests: dict[str, int]
    # The pod's constraints on its node (`node_constraints`).
    constraints: dict[str, Any]
    # Whether a pod is created for each node (DaemonSet).
    on_each_node: bool = False


def read_preference(pod: Mapping[str, Json], owner: PodOwner, keys: Collection[str], state: State) -> Preference | None:
    """Read which nodes are preferred for a pod whose `keys` would become claims.

    None if only claims can serve the pod, if it requests none of the keys, or if it is malformed.
    """
    policies = state.configuration.file.mixed
    try:
        typed_pod = convert(dict(pod), Pod)
        pod_requests = requests(typed_pod)
    except (WireError, QuantityError):
        return None
    needs = {key: pod_requests[key] for key in sorted(keys) if pod_requests.get(key)}
    if not needs:
        return None
    if typed_pod.spec.resource_claims:
        return None  # its own claims need migrated nodes
    other_requests = {
        key: amount for key, amount in pod_requests.items() if key not in needs and key not in state.fleet.extended
    }
    spec = pod["spec"]
    assert isinstance(spec, dict)
    constraints = node_constraints(spec)
    by_claims, why = True, "without a policy in `mixed`, claims are preferred"
    if policies.keys() >= needs.keys():
        first_key = next(iter(needs))
        by_claims, why = _prefers_claims(policies[first_key], owner, constraints)
        why = f"{why} (`mixed`, {first_key})"
    on_each_node = owner.kind == "DaemonSet"
    return Preference(
        by_claims=by_claims,
        why=why,
        needs=needs,
        other_requests=other_requests,
        constraints=constraints,
        on_each_node=on_each_node,
    )


def _prefers_claims(policy: MixedFleet, owner: PodOwner, constraints: Mapping[str, Any]) -> tuple[bool, str]:
    own_policy = policy.namespaces.get(owner.namespace)
    nodes: PreferredNodes = own_policy or policy
    namespace_text = f"in namespace {owner.namespace} " if own_policy else ""
    if nodes.prefer is not None:
        by_claims = nodes.prefer == "dra"
        return by_claims, f"{namespace_text}{_WITH_DRIVER if by_claims else _WITH_PLUGIN} are preferred"
    if nodes.percent is not None:
        by_claims = owner.within(nodes.percent)
        included = "is" if by_claims else "is not"
        return (
            by_claims,
            f"{namespace_text}{nodes.percent}% of workloads prefer {_WITH_DRIVER}, and this workload {included} one of them",
        )
    # The labels for which the pod requires a single value: in its node selector, or in a required node affinity with one term.
    required_labels = dict(constraints.get("nodeSelector", {}))
    try:
        terms = convert(constraints.get("required", {}), NodeSelector).node_selector_terms
    except WireError:
        terms = ()
    if len(terms) == 1:
        for expression in terms[0].match_expressions:
            if expression.operator == "In" and len(expression.values) == 1:
                required_labels[expression.key] = expression.values[0]
    by_claims = nodes.node_selector.items() <= required_labels.items()
    labels = ", ".join([f"{key}={value}" for key, value in nodes.node_selector.items()])
    return by_claims, f"{namespace_text}the pod {'requires' if by_claims else 'does not require'} a node with {labels}"
