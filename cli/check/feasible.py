"""Claims that no node could serve even if nothing were in use: the deep half of `check`, asked of the allocator.

Said only where the input names a whole fleet: classes, slices, and nodes or slices that name their nodes. Each distinct
demand is searched once, and answered as the webhook would answer it: its words, its code, and what would fit instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

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
from dra.stock import Stock
from dra.validation import Problem, Reviewed, findings, name, read
from dra.wire import WireError, builtins, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.server import Server
    from webhook.state import NodeTemplate

    Object = dict[str, Any]

# Distinct demands that are searched; a directory of manifests has a handful.
_MOST: Final = 500
_RISK: Final = 200_000  # steps for what a scheduler may do against a rule
# Findings that already say why a claim cannot be served.
_SAID: Final = frozenset({"D301", "D302", "D303", "D304", "D305", "D306", "D307", "D314"})


def never(
    objects: Sequence[Object], known: Sequence[Object], found: Sequence[Reviewed], server: Server = EVERYTHING
) -> list[Reviewed]:
    """Find the claims, templates and pods among the objects that an idle fleet could not serve."""
    explained: set[int] = set()
    for number, finding in found:
        if finding.code in _SAID or finding.severity.value == "error":
            explained.add(number)
    values = [_read(value) for value in objects]
    others = [_read(value) for value in known]
    stock = _stock([value for value in (*values, *others) if value is not None], server)
    if stock is None:
        return []
    answers: dict[bytes, list[Problem]] = {}
    told: list[Reviewed] = []
    everything = [*values, *others]
    in_use = filter(_holds, everything)
    busy = stock.with_all(in_use)
    for number, value in enumerate(values):
        demand = _demand(value)
        if demand is None or number in explained:
            continue
        key = msgspec.json.encode(demand.spec, enc_hook=str)
        if key not in answers and len(answers) < _MOST:
            answers[key] = _never(stock, demand)
        risks = _risks(busy, demand)
        problems = [*answers.get(key, ()), *risks]
        for finding in findings(problems, name(objects[number])):
            reviewed = Reviewed(number, finding)
            told.append(reviewed)
    return told


def lay_out_prospects(objects: Sequence[Object], templates: Sequence[NodeTemplate]) -> list[Object]:
    """Lay out what an autoscaler can make: one node each, and its slices.

    Only where there is a fleet at all: beside nothing, a node that may come would look like all there is.
    """
    stock = _stock([value for value in map(_read, objects) if value is not None])
    if stock is None:
        return []
    from webhook.state import prospects

    coming = prospects(templates, stock)
    if coming is None:
        return []
    nodes = coming.nodes
    pieces = coming.slices.values()
    slices = [_plain(piece) for piece in pieces if piece.spec.node_name in nodes]
    return [*map(_plain, nodes.values()), *slices]


def _plain(value: Node | ResourceSlice) -> Object:
    plain = builtins(value)
    assert isinstance(plain, dict)
    return {"apiVersion": value.api_version, "kind": value.kind, **plain}


def _read(value: Object) -> Any:
    if value.get("kind") != "Node" or value.get("apiVersion") != "v1":
        return read(value)
    try:
        return convert(value, Node)
    except WireError:
        return None


def _stock(values: Sequence[Any], server: Server = EVERYTHING) -> Stock | None:
    """Build the idle fleet; None if the input does not describe one."""
    slices = [value for value in values if isinstance(value, ResourceSlice)]
    classes = [value for value in values if isinstance(value, DeviceClass)]
    nodes = [value for value in values if isinstance(value, Node)] or _nodes_of(slices)
    if not slices or not classes or not nodes:
        return None
    return Stock.of(
        slices=slices,
        classes=classes,
        nodes=nodes,
        rules=[value for value in values if isinstance(value, DeviceTaintRule)],
        compatibilities=[value for value in values if isinstance(value, DeviceCompatibility)],
        server=server,
    )


def _nodes_of(slices: Iterable[ResourceSlice]) -> list[Node]:
    """Make the nodes that slices name; none if some slice finds its nodes by their labels, which nobody told."""
    names = dict.fromkeys(piece.spec.node_name for piece in slices)
    return [] if None in names else [Node(metadata=ObjectMeta(name=node)) for node in names if node]


def _demand(value: Any) -> ResourceClaim | None:
    """Give the claim that an object is, or that it makes."""
    match value:
        case ResourceClaim() if value.status.allocation is None:
            return defaults.claim(value)
        case ResourceClaimTemplate():
            return defaults.claim(ResourceClaim(metadata=value.metadata, spec=value.spec.spec))
    return None


def _holds(value: Any) -> bool:
    return isinstance(value, ResourceClaim) and value.status.allocation is not None


def _risks(busy: Stock, claim: ResourceClaim) -> list[Problem]:
    """Say against which rule Kubernetes' own scheduler may serve a claim beside what is in use."""
    if not busy.compatibilities:
        return []
    from dra.budget import Budget
    from webhook.admission import unheld

    risk = unheld(busy, [claim], Budget(_RISK))
    return [Problem("D507", "/spec", f"kube-scheduler knows no DeviceCompatibility: {risk}")] if risk else []


def _never(stock: Stock, claim: ResourceClaim) -> list[Problem]:
    from webhook.admission import Feasibility, judge
    from webhook.refusals import sentence

    judgement = judge(stock, [claim])
    if judgement.verdict is not Feasibility.NEVER:
        return []
    # A finding has a place of its own for the remedy; without one it gives the general advice of its code.
    return [Problem("D315", "/spec", sentence(judgement.code, judgement.text), judgement.remedy)]
