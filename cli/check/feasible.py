"""Claims that no node could serve even if nothing were in use: the deep half of `check`, asked of the allocator.

Said only where the input names a whole fleet: classes, slices, and nodes or slices that name their nodes. Each distinct
demand is searched once, and answered as the webhook would answer it: its words, its code, and what would fit instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from cli.devices import TypedObjects
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
from dra.validation import Problem, Reviewed, findings, name, read
from dra.wire import WireError, builtins, convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.server import Server
    from dra.stock import Stock
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
    from dra.budget import Budget
    from webhook.admission import Feasibility, judge, unheld
    from webhook.refusals import PAGES, Denial

    explained: set[int] = set()
    for number, finding in found:
        if finding.code in _SAID or finding.code in PAGES or finding.severity.value == "error":
            explained.add(number)
    values = [_read(value) for value in objects]
    others = [_read(value) for value in known]
    stock = _stock([value for value in (*values, *others) if value is not None], server)
    if stock is None:
        return []
    answers: dict[bytes, list[Problem]] = {}
    told: list[Reviewed] = []
    claims = [value for value in (*values, *others) if isinstance(value, ResourceClaim)]
    busy = stock.with_all(claim for claim in claims if claim.status.allocation is not None)
    for number, value in enumerate(values):
        # The claim that an object is, or that it makes.
        if isinstance(value, ResourceClaim) and value.status.allocation is None:
            demand = defaults.claim(value)
        elif isinstance(value, ResourceClaimTemplate):
            demand = defaults.claim(ResourceClaim(metadata=value.metadata, spec=value.spec.spec))
        else:
            continue
        if number in explained:
            continue
        key = msgspec.json.encode(demand.spec, enc_hook=str)
        if key not in answers and len(answers) < _MOST:
            judgement = judge(stock, [demand])
            answers[key] = []
            if judgement.verdict is Feasibility.NEVER:
                # A finding has a place of its own for the remedy; without one it gives the general advice of its code.
                said = str(Denial(judgement.code, judgement.text))
                answers[key].append(Problem("D315", "/spec", said, judgement.remedy))
        problems = list(answers.get(key, ()))
        # Kubernetes' own scheduler may serve a claim against a rule, beside what is in use.
        risk = unheld(busy, [demand], Budget(_RISK)) if busy.compatibilities else ""
        if risk:
            problems.append(Problem("D507", "/spec", f"kube-scheduler knows no DeviceCompatibility: {risk}"))
        told += [Reviewed(number, finding) for finding in findings(problems, name(objects[number]))]
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
    nodes = [value for value in values if isinstance(value, Node)]
    if not nodes:
        # Slices name them, unless some slice finds its nodes by labels, which the input does not tell.
        named = dict.fromkeys(piece.spec.node_name for piece in slices)
        nodes = [Node(metadata=ObjectMeta(name=node)) for node in named if node and None not in named]
    if not slices or not classes or not nodes:
        return None
    rules = [value for value in values if isinstance(value, DeviceTaintRule | DeviceCompatibility)]
    return TypedObjects([*slices, *classes, *nodes, *rules]).stock(server)
