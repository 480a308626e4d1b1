"""Which side of a mixed fleet a pod shall be served on if it can be, by the policy that is declared for its keys (`mixed`). Pure.

A policy deals the pods that ask by a name which device plugins and DeviceClasses both serve. It says what is preferred; what
has room is `webhook.sides.choice`'s question. A pod has a choice only if every word that its claims would replace has a policy:
what one word cannot have on the old side, no other can have there for it.
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
    from webhook.state import MixedFleet, Sides, State, Workload


class Preference(Wire, frozen=True, kw_only=True):
    """The side that is preferred for a pod, and what it takes to serve it on the other."""

    moved: bool  # nodes that publish devices to a driver; else those whose device plugins hand the name out
    why: str
    # What device plugins would have to hand out on one node, in nano-units.
    needs: dict[str, int]
    # Where it may run.
    place: Pod


def read_preference(pod: Mapping[str, Json], who: Workload, keys: Collection[str], state: State) -> Preference | None:
    """Read for which side a pod is that would be given claims for these keys; None if it has no choice."""
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
    sides: Sides = own or policy
    where = f"in namespace {who.namespace} " if own else ""
    if sides.prefer is not None:
        moved = sides.prefer == "dra"
        return moved, f"{where}{_SIDES[moved]} are preferred"
    if sides.percent is not None:
        moved = covers(who, sides.percent)
        return moved, f"{where}{sides.percent}% prefer {_SIDES[True]}, and this is {'one' if moved else 'none'} of them"
    moved = sides.node_selector.items() <= _demanded(spec).items()
    labels = ", ".join([f"{key}={value}" for key, value in sides.node_selector.items()])
    return moved, f"{where}the pod {'demands' if moved else 'does not demand'} {labels} of its node"


_SIDES = {True: "nodes that have moved", False: "nodes with a device plugin"}


def _demanded(spec: PodSpec) -> dict[str, str]:
    """The labels that a pod demands with one value: its selector's, and those of a required affinity with a single term."""
    found = dict(spec.node_selector)
    required = spec.affinity.value() if spec.affinity is not None else None
    for step in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(step) if isinstance(required, dict) else None
    try:
        terms = convert(required or {}, NodeSelector).node_selector_terms
    except WireError:
        return found
    alone = terms[0].match_expressions if len(terms) == 1 else ()
    for one in alone:
        if one.operator == "In" and len(one.values) == 1:
            found[one.key] = one.values[0]
    return found
