"""On which nodes a pod shall be served if it can be, by the policy that is declared for its keys (`mixed`). Pure.

A policy deals the pods that ask by a name which device plugins and DeviceClasses both serve. It says what is preferred; what
has room is the question of `webhook.mixed_fleet.choice`. A pod has a choice only if every key that its claims would replace has a
policy: a key without one is served by claims alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.pods import requests
from dra.errors import QuantityError
from dra.objects import NodeSelector, Pod, PodSpec
from dra.wire import Wire, WireError, convert
from webhook.state import covers

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
    # Where it may run.
    place: Pod


def read_preference(pod: Mapping[str, Json], who: Workload, keys: Collection[str], state: State) -> Preference | None:
    """Read which nodes are preferred for a pod that would be given claims for these keys; None if it has no choice."""
    policies = state.configuration.file.mixed
    if not policies or not keys or not policies.keys() >= set(keys):
        return None
    try:
        read = convert(dict(pod), Pod)
        asked = requests(read)
    except (WireError, QuantityError):
        return None
    needs = {key: asked[key] for key in sorted(keys) if asked.get(key)}
    if not needs:
        return None
    spec = read.spec
    if spec.resource_claims:
        return None  # its own claims need nodes that have moved
    place = PodSpec(
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
    )
    first = next(iter(needs))
    moved, why = _prefer(policies[first], who, spec)
    return Preference(moved=moved, why=f"{why} (`mixed`, {first})", needs=needs, place=Pod(spec=place))


def _prefer(policy: MixedFleet, who: Workload, spec: PodSpec) -> tuple[bool, str]:
    """Say whether nodes that have moved are preferred, and on what that rests."""
    own = policy.namespaces.get(who.namespace)
    nodes: PreferredNodes = own or policy
    where = f"in namespace {who.namespace} " if own else ""
    if nodes.prefer is not None:
        moved = nodes.prefer == "dra"
        return moved, f"{where}{_MOVED if moved else _NOT_MOVED} are preferred"
    if nodes.percent is not None:
        moved = covers(who, nodes.percent)
        return moved, f"{where}{nodes.percent}% prefer {_MOVED}, and this is {'one' if moved else 'none'} of them"
    # The labels that the pod demands with one value: its selector's, and those of a required affinity with a single term.
    demanded = dict(spec.node_selector)
    required = spec.affinity.value() if spec.affinity is not None else None
    for step in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(step) if isinstance(required, dict) else None
    try:
        terms = convert(required or {}, NodeSelector).node_selector_terms
    except WireError:
        terms = ()
    if len(terms) == 1:
        for one in terms[0].match_expressions:
            if one.operator == "In" and len(one.values) == 1:
                demanded[one.key] = one.values[0]
    moved = nodes.node_selector.items() <= demanded.items()
    labels = ", ".join([f"{key}={value}" for key, value in nodes.node_selector.items()])
    return moved, f"{where}the pod {'demands' if moved else 'does not demand'} {labels} of its node"
