"""Nodes and node selectors.

Matching mirrors k8s.io/component-helpers/scheduling/corev1/nodeaffinity: terms are ORed, requirements ANDed, an empty
term matches nothing, and an invalid expression is an error rather than "no match".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import names
from dra.errors import NodeSelectorError
from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class Taint(Wire, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = ""


class NodeStatus(Wire, frozen=True, kw_only=True):
    allocatable: dict[str, Quantity] = {}
    capacity: dict[str, Quantity] = {}
    declared_features: tuple[str, ...] = ()


class Node(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "Node"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def matches(selector: NodeSelector, node: Node) -> bool:
    """Whether a node selector matches a node; raise NodeSelectorError if Kubernetes cannot parse it."""
    verdicts: list[bool] = []
    for term in selector.node_selector_terms:
        labels = [_requirement(one, node.metadata.labels) for one in term.match_expressions]
        fields: list[bool] = []
        for one in term.match_fields:
            if one.operator not in ("In", "NotIn") or len(one.values) != 1:
                raise NodeSelectorError(f"field {one.key!r} takes In or NotIn with exactly one value")
            # Kubernetes sets metadata.name only; any other field is empty.
            have = node.metadata.name if one.key == "metadata.name" else ""
            fields.append((have == one.values[0]) == (one.operator == "In"))
        verdicts.append(bool(labels or fields) and all(labels) and all(fields))
    return any(verdicts)


def _requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    # Like labels.NewRequirement, refuse keys and values that no label can have.
    if names.label_key(key):
        raise NodeSelectorError(f"{key!r} is not a valid label key")
    for value in values:
        if names.label_value(value):
            raise NodeSelectorError(f"{value!r} is not a valid value of label {key!r}")
    have = labels.get(key)
    match operator:
        case "In" | "NotIn":
            if not values:
                raise NodeSelectorError(f"operator {operator} on {key!r} needs at least one value")
            return (have in values) if operator == "In" else (have not in values)
        case "Exists" | "DoesNotExist":
            if values:
                raise NodeSelectorError(f"operator {operator} on {key!r} takes no values")
            return (have is not None) == (operator == "Exists")
        case "Gt" | "Lt":
            if len(values) != 1 or (bound := int64(values[0])) is None:
                raise NodeSelectorError(f"operator {operator} on {key!r} needs exactly one integer")
            number = None if have is None else int64(have)
            return number is not None and (number > bound if operator == "Gt" else number < bound)
    raise NodeSelectorError(f"{operator!r} is not a valid node selector operator")


def int64(text: str) -> int | None:
    """Parse as strconv.ParseInt(text, 10, 64) does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
