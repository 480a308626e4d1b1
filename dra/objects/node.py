"""Nodes, and the matching of node selectors.

The matching mirrors k8s.io/component-helpers/scheduling/corev1/nodeaffinity: a node matches if it meets all
requirements of any term. An empty term matches no node. An invalid requirement is an error, not "no match".
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING

from dra import names
from dra.errors import NodeSelectorError
from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator


class NodeSelectorRequirement(Wire, frozen=True, kw_only=True, gc=True, dict=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    @cached_property
    def _in_order(self) -> tuple[str, ...]:
        return tuple(sorted(self.values))  # a quarter of a set's memory

    def lists(self, value: str) -> bool:
        """Whether the requirement lists the value.

        Binary search, because a slice may list a million values, for each node.
        """
        values = self._in_order
        index = bisect_left(values, value)
        return index < len(values) and values[index] == value


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True, kw_only=True, gc=True, dict=True, cache_hash=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    @cached_property
    def mistake(self) -> str:
        """The part of the selector that Kubernetes cannot parse, or "". Cached, because many nodes are matched."""
        return next((text for term in self.node_selector_terms for text in _mistakes(term)), "")


class Taint(Wire, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True, kw_only=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


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
    """Whether a node selector matches a node; raise NodeSelectorError if Kubernetes cannot parse the selector."""
    if selector.mistake:
        raise NodeSelectorError(selector.mistake)
    labels, name = node.metadata.labels, node.metadata.name
    return any(
        bool(term.match_expressions or term.match_fields)
        and all(_meets(requirement, labels.get(requirement.key)) for requirement in term.match_expressions)
        # Kubernetes knows the field metadata.name only; any other field counts as empty.
        and all(_meets(field, name if field.key == "metadata.name" else "") for field in term.match_fields)
        for term in selector.node_selector_terms
    )


def _mistakes(term: NodeSelectorTerm) -> Iterator[str]:
    """Yield the mistakes that labels.NewRequirement finds: invalid keys, values, operators and numbers of values."""
    for requirement in term.match_expressions:
        key, operator, values = requirement.key, requirement.operator, requirement.values
        if names.label_key(key):
            yield f"{key!r} is not a valid label key"
        for value in values:
            if names.label_value(value):
                yield f"{value!r} is not a valid value of label {key!r}"
        match operator:
            case "In" | "NotIn":
                if not values:
                    yield f"operator {operator} on {key!r} needs at least one value"
            case "Exists" | "DoesNotExist":
                if values:
                    yield f"operator {operator} on {key!r} takes no values"
            case "Gt" | "Lt":
                if len(values) != 1 or int64(values[0]) is None:
                    yield f"operator {operator} on {key!r} needs exactly one integer"
            case _:
                yield f"{operator!r} is not a valid node selector operator"
    for field in term.match_fields:
        if field.operator not in ("In", "NotIn") or len(field.values) != 1:
            yield f"field {field.key!r} takes In or NotIn with exactly one value"


def _meets(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    """Whether a label or field meets a requirement that has no mistake."""
    match requirement.operator:
        case "In":
            return value is not None and requirement.lists(value)
        case "NotIn":
            return value is None or not requirement.lists(value)
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            number, bound = None if value is None else int64(value), int64(requirement.values[0])
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound


def int64(text: str) -> int | None:
    """Parse as strconv.ParseInt(text, 10, 64) does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
