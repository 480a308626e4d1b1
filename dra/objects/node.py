"""Nodes, and the selectors that say which of them a slice, a device or an allocation belongs to.

Matching follows k8s.io/component-helpers/scheduling/corev1/nodeaffinity: terms are ORed, requirements ANDed, an empty
term matches nothing, and an expression that cannot be parsed is an error rather than a "no".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dra.errors import NodeSelectorError
from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping


_LONGEST_NAME = 63
_LONGEST_PREFIX = 253
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?").fullmatch
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*").fullmatch


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
    """Say whether a node selector matches a node; raise NodeSelectorError where Kubernetes cannot parse it."""
    verdicts = [_term(term, node) for term in selector.node_selector_terms]
    return any(verdicts)


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = [_requirement(r, node.metadata.labels) for r in term.match_expressions]
    fields = [_field(r, node.metadata.name) for r in term.match_fields]
    return all(labels) and all(fields)


def _requirement(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    _check_names(requirement)
    have = labels.get(requirement.key)
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                raise NodeSelectorError(
                    f"operator {requirement.operator} on {requirement.key!r} needs at least one value"
                )
            return (have in values) if requirement.operator == "In" else (have not in values)
        case "Exists" | "DoesNotExist":
            if values:
                raise NodeSelectorError(f"operator {requirement.operator} on {requirement.key!r} takes no values")
            return (have is not None) == (requirement.operator == "Exists")
        case "Gt" | "Lt":
            return _compare(requirement, have)
    raise NodeSelectorError(f"{requirement.operator!r} is not a valid node selector operator")


def _compare(requirement: NodeSelectorRequirement, have: str | None) -> bool:
    if len(requirement.values) != 1 or (bound := _int64(requirement.values[0])) is None:
        raise NodeSelectorError(f"operator {requirement.operator} on {requirement.key!r} needs exactly one integer")
    value = None if have is None else _int64(have)
    if value is None:
        return False
    return value > bound if requirement.operator == "Gt" else value < bound


def _check_names(requirement: NodeSelectorRequirement) -> None:
    """Refuse what can be no label, as labels.NewRequirement does."""
    prefix, slash, name = requirement.key.rpartition("/")
    if not (0 < len(name) <= _LONGEST_NAME and _LABEL_VALUE(name)) or (
        slash and not (len(prefix) <= _LONGEST_PREFIX and _SUBDOMAIN(prefix))
    ):
        raise NodeSelectorError(f"{requirement.key!r} is not a valid label key")
    for value in requirement.values:
        if len(value) > _LONGEST_NAME or not _LABEL_VALUE(value):
            raise NodeSelectorError(f"{value!r} is not a valid value of label {requirement.key!r}")


def _field(requirement: NodeSelectorRequirement, name: str) -> bool:
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        raise NodeSelectorError(f"field {requirement.key!r} takes In or NotIn with exactly one value")
    # Only metadata.name is ever populated; any other field reads as the empty string.
    have = name if requirement.key == "metadata.name" else ""
    return (have == requirement.values[0]) == (requirement.operator == "In")


def _int64(text: str) -> int | None:
    """Parse as strconv.ParseInt(text, 10, 64) does."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
