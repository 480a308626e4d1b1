"""Finds claims that no node could serve even if no device were in use (D315), and claims for which kube-scheduler may allocate devices that a
DeviceCompatibility rules out (D507).

If the input has nodes, the webhook's decisions already cover D315, except for claims that wait for a slice that a driver has announced and not
published. If the input has no nodes, but classes and slices that name their nodes, this module passes each distinct claim spec to the webhook's
judge once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from analysis.loading import TypedObjects
from cluster.resources import NODES, RESOURCE_SLICES
from dra import step_limits
from dra.finding import Finding, make_finding
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    defaults,
)
from dra.server import EVERYTHING
from dra.stock import newest, usable
from dra.validation import CODES, name, read_object
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.raw import Object
    from dra.server import Server
    from dra.stock import Stock
    from webhook.state import NodeTemplate


_MAX_SEARCHED: Final = 500  # distinct claim specs
# Findings that already explain why a claim cannot be served.
_EXPLAINING: Final = frozenset({"D301", "D302", "D303", "D304", "D305", "D306", "D307", "D314"})


def find_unservable(
    objects: Sequence[Object],
    inventory: Sequence[Object],
    findings: Sequence[Sequence[Finding]],
    server: Server = EVERYTHING,
) -> list[list[Finding]]:
    """Return the findings of each object, with one more for each claim or template that no device can serve."""
    from dra.budget import Budget
    from dra.finding import stated
    from webhook.placement import Feasibility, can_any_node_serve, find_broken_rule
    from webhook.refusals import REFUSALS, Code

    values = [_read(value) for value in objects]
    known_values = [_read(value) for value in inventory]
    stock = _stock([value for value in (*values, *known_values) if value is not None], server)
    if stock is None:
        return [list(of_object) for of_object in findings]
    answers: dict[bytes, tuple[str, str] | None] = {}  # message and remedy
    added = [list(of_object) for of_object in findings]
    claims = [value for value in (*values, *known_values) if isinstance(value, ResourceClaim)]
    are_nodes_known = any(isinstance(value, Node) for value in (*values, *known_values))
    is_judged = not are_nodes_known or len(usable(stock.slices.values())) < len(newest(stock.slices.values()))
    busy = stock.with_all(claim for claim in claims if claim.status.allocation is not None)
    for number, value in enumerate(values):
        if isinstance(value, ResourceClaim) and value.status.allocation is None:
            demand = defaults.claim(value)
        elif isinstance(value, ResourceClaimTemplate):
            demand = defaults.claim(ResourceClaim(metadata=value.metadata, spec=value.spec.spec))
        else:
            continue
        if any(
            finding.code in _EXPLAINING or finding.code in REFUSALS or finding.refuses for finding in findings[number]
        ):
            continue
        key = msgspec.json.encode(demand.spec, enc_hook=str)
        if is_judged and key not in answers and len(answers) < _MAX_SEARCHED:
            judgement = can_any_node_serve(stock, [demand], subject="claim")
            # A class that is not in the manifests may be installed with its driver; an inventory has all classes.
            never = judgement.verdict is Feasibility.NEVER and (bool(inventory) or judgement.code is not Code.NO_CLASS)
            answers[key] = (str(stated(judgement.code, judgement.text)), judgement.remedy) if never else None
            if judgement.lacks_pool:
                answers[key] = judgement.text, CODES["D401"].remedy
        reference = name(objects[number])
        if answer := answers.get(key):
            added[number].append(make_finding("D315", reference, *answer, path="/spec"))
        # kube-scheduler may allocate devices that a DeviceCompatibility rules out.
        risk = find_broken_rule(busy, [demand], Budget(step_limits.BROKEN_RULES)) if busy.compatibilities else ""
        if risk:
            message = f"kube-scheduler ignores DeviceCompatibility: {risk}"
            added[number].append(make_finding("D507", reference, message, path="/spec"))
    return added


def prospective_nodes(objects: Sequence[Object], templates: Sequence[NodeTemplate]) -> list[Object]:
    """List one node with its slices for each kind of node that an autoscaler can add.

    The list is empty if the input describes no fleet, because the prospective nodes would then count as the whole fleet.
    """
    stock = _stock([value for value in map(_read, objects) if value is not None])
    if stock is None:
        return []
    from webhook.state import prospects

    prospective_stock = prospects(templates, stock)
    if prospective_stock is None:
        return []
    nodes = prospective_stock.nodes
    slices = [piece for piece in prospective_stock.slices.values() if piece.spec.node_name in nodes]
    return [*map(NODES.plain, nodes.values()), *map(RESOURCE_SLICES.plain, slices)]


def _read(value: Object) -> Any:
    if value.get("kind") != "Node" or value.get("apiVersion") != "v1":
        return read_object(value)
    try:
        return convert(value, Node)
    except WireError:
        return None


def _stock(values: Sequence[Any], server: Server = EVERYTHING) -> Stock | None:
    """Build the idle fleet; None if the input does not describe one."""
    slices = [value for value in values if isinstance(value, ResourceSlice)]
    classes = [value for value in values if isinstance(value, DeviceClass)]
    nodes = [value for value in values if isinstance(value, Node)]
    if not nodes:
        # The nodes that slices name count as all nodes, unless a slice selects nodes by labels, which are not in the input.
        node_names = dict.fromkeys(piece.spec.node_name for piece in slices)
        nodes = [Node(metadata=ObjectMeta(name=node)) for node in node_names if node and None not in node_names]
    if not slices or not classes or not nodes:
        return None
    rules = [value for value in values if isinstance(value, DeviceTaintRule | DeviceCompatibility)]
    return TypedObjects([*slices, *classes, *nodes, *rules]).stock(server)
