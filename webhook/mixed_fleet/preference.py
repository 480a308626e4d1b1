"""On which nodes of a mixed fleet a pod shall be served if it can be, by the policy that is declared for its keys (`mixed`). Pure.

A policy deals the pods that ask by a name which device plugins and DeviceClasses both serve. It says what is preferred; what can
serve the pod and has room is the question of `webhook.mixed_fleet.choice`. Where a key has no policy, claims are preferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocator.pods import requests
from dra.errors import QuantityError
from dra.objects import NodeSelector, Pod
from dra.wire import Wire, WireError, convert
from webhook.mixed_fleet.reach import place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dra.wire import Json
    from webhook.state import MixedFleet, PreferredNodes, State, Workload

_MOVED, _NOT_MOVED = "nodes that have moved", "nodes with a device plugin"


class Preference(Wire, frozen=True, kw_only=True):
    """The nodes that are preferred for a pod, and what it takes to serve it on the others."""

    moved: bool  # nodes that publish devices to a driver; else those whose device plugins hand the name out
    why: str
    # What device plugins would have to hand out on one node, in nano-units.
    needs: dict[str, int]
    # What else a node must have.
    besides: dict[str, int]
    # What the pod says of its node.
    place: dict[str, Any]
    # Whether it is a template whose pods are made for each node.
    on_each_node: bool = False


def read_preference(pod: Mapping[str, Json], who: Workload, keys: Collection[str], state: State) -> Preference | None:
    """Read which nodes are preferred for a pod that would be given claims for these keys; None if only claims can serve it."""
    policies = state.configuration.file.mixed
    try:
        read = convert(dict(pod), Pod)
        asked = requests(read)
    except (WireError, QuantityError):
        return None
    needs = {key: asked[key] for key in sorted(keys) if asked.get(key)}
    if not needs:
        return None
    if read.spec.resource_claims:
        return None  # its own claims need nodes that have moved
    besides = {key: amount for key, amount in asked.items() if key not in needs and key not in state.fleet.extended}
    raw = pod["spec"]
    assert isinstance(raw, dict)
    place = place_of(raw)
    moved, why = True, "claims are preferred where `mixed` says nothing"
    if policies.keys() >= needs.keys():
        first = next(iter(needs))
        moved, why = _prefer(policies[first], who, place)
        why = f"{why} (`mixed`, {first})"
    each = who.kind == "DaemonSet"
    return Preference(moved=moved, why=why, needs=needs, besides=besides, place=place, on_each_node=each)


def _prefer(policy: MixedFleet, who: Workload, place: Mapping[str, Any]) -> tuple[bool, str]:
    """Say whether nodes that have moved are preferred, and on what that rests."""
    own = policy.namespaces.get(who.namespace)
    nodes: PreferredNodes = own or policy
    where = f"in namespace {who.namespace} " if own else ""
    if nodes.prefer is not None:
        moved = nodes.prefer == "dra"
        return moved, f"{where}{_MOVED if moved else _NOT_MOVED} are preferred"
    if nodes.percent is not None:
        moved = who.within(nodes.percent)
        return moved, f"{where}{nodes.percent}% prefer {_MOVED}, and this is {'one' if moved else 'none'} of them"
    # The labels that the pod demands with one value: its selector's, and those of a required affinity with a single term.
    demanded = dict(place.get("nodeSelector", {}))
    try:
        terms = convert(place.get("required", {}), NodeSelector).node_selector_terms
    except WireError:
        terms = ()
    if len(terms) == 1:
        for one in terms[0].match_expressions:
            if one.operator == "In" and len(one.values) == 1:
                demanded[one.key] = one.values[0]
    moved = nodes.node_selector.items() <= demanded.items()
    labels = ", ".join([f"{key}={value}" for key, value in nodes.node_selector.items()])
    return moved, f"{where}the pod {'demands' if moved else 'does not demand'} {labels} of its node"
