"""The nodes that a pod can run on: by nodeName, nodeSelector, required node affinity, and tolerated taints.

The scheduler checks each node for each pod. This module instead indexes the nodes of a fleet once by their label values, so that a selector
costs only a few set operations. As in the scheduler, a term that Kubernetes cannot parse matches no node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from allocator.pods import untolerated
from dra.cache import Cache
from dra.errors import NodeSelectorError
from dra.objects import Node, NodeSelector, NodeSelectorTerm, ObjectMeta, Toleration, int64, matches
from dra.wire import Wire, WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dra.budget import Budget
    from dra.objects import NodeSelectorRequirement, NodeSpec
    from dra.wire import Json
    from webhook.state import Configuration, Inventory, NodeTemplate, State

# A toleration of every taint, because taints may be removed.
_ANY_TAINT: list[Json] = [{"operator": "Exists"}]
# Prefixes of the taints for node conditions and cordons, which are temporary.
_TEMPORARY = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
# A pod with more constraints than this is assumed to reach every node.
MAX_CONSTRAINTS = 64
# Nodes whose labels are read for one step of the budget.
NODES_A_STEP = 10
_REQUIRED = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class Reach(msgspec.Struct, frozen=True):
    """The nodes that a pod can run on now, and the nodes that are closed to it only by temporary taints (`closed`)."""

    nodes: frozenset[str]
    closed: frozenset[str] = frozenset()


class _NodeConstraints(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    required: NodeSelector | None = None


def node_constraints(spec: Mapping[str, Json]) -> dict[str, Any]:
    """Return the fields of a pod's spec that constrain its node: nodeName, nodeSelector, tolerations, and `required` node affinity."""
    constraints = {field: spec[field] for field in ("nodeName", "nodeSelector", "tolerations") if spec.get(field)}
    required: Any = spec
    for step in _REQUIRED:
        required = required.get(step) if isinstance(required, dict) else None
    if required is not None:
        constraints["required"] = required
    return constraints


class NodeIndex:
    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._every = frozenset(nodes)
        # By label key: the nodes of each value.
        self._labels: Cache[dict[str, set[str]]] = Cache(24 << 20)
        self._reaches: Cache[Reach] = Cache(4 << 20)
        # Each set of taints with its nodes; computed when it is first needed.
        self._tainted: list[tuple[NodeSpec, frozenset[str]]] | None = None

    def reach(self, constraints: Mapping[str, Json], budget: Budget | None = None) -> Reach:
        """Find the nodes that fit a pod's constraints; all nodes if the constraints are malformed or too many."""
        key = msgspec.json.encode(constraints)
        reachable = self._reaches.get(key)
        if reachable is None:
            try:
                reachable = self._find(convert(dict(constraints), _NodeConstraints), budget)
            except WireError:
                reachable = Reach(self._every)
            set_size = 0 if reachable.nodes is self._every else 64 * (len(reachable.nodes) + len(reachable.closed))
            self._reaches.put(key, reachable, 200 + len(key) + set_size)
        return reachable

    def _find(self, constraints: _NodeConstraints, budget: Budget | None) -> Reach:
        nodes = self._every
        terms = constraints.required.node_selector_terms if constraints.required is not None else ()
        requirements = sum(len(term.match_expressions) + len(term.match_fields) for term in terms)
        if len(constraints.node_selector) + len(terms) + requirements > MAX_CONSTRAINTS:
            return Reach(nodes)
        if constraints.node_name:
            nodes &= {constraints.node_name}
        for key, value in constraints.node_selector.items():
            nodes &= self._of_label(key, budget).get(value, frozenset())
        if constraints.required is not None:
            nodes &= frozenset().union(*[self._of_term(term, budget) for term in terms])
        if self._tainted is None:
            groups: dict[object, list[str]] = {}
            for name, node in self._nodes.items():
                if node.spec.taints or node.spec.unschedulable:
                    groups.setdefault((node.spec.taints, node.spec.unschedulable), []).append(name)
            self._tainted = [
                (self._nodes[tainted_names[0]].spec, frozenset(tainted_names)) for tainted_names in groups.values()
            ]
        closed = frozenset[str]()
        for spec, names in self._tainted:
            if budget is not None:
                budget.charge(1 + len(constraints.tolerations))
            taints = untolerated(constraints.tolerations, spec)
            if taints:
                temporary = all(taint.key.startswith(_TEMPORARY) for taint in taints)
                closed |= names & nodes if temporary else frozenset()
                nodes -= names
        return Reach(nodes, closed)

    def _of_label(self, key: str, budget: Budget | None) -> dict[str, set[str]]:
        by_value = self._labels.get(key)
        if by_value is None:
            if budget is not None:
                budget.charge(1 + len(self._nodes) // NODES_A_STEP)
            by_value = {}
            for name, node in self._nodes.items():
                value = node.metadata.labels.get(key)
                if value is not None:
                    by_value.setdefault(value, set()).add(name)
            self._labels.put(key, by_value, 200 + len(key) + 350 * len(by_value) + 32 * len(self._nodes))
        return by_value

    def _of_term(self, term: NodeSelectorTerm, budget: Budget | None) -> frozenset[str]:
        nodes = self._every
        if budget is not None:
            budget.charge(
                1 + sum([1 + len(requirement.values) for requirement in (*term.match_expressions, *term.match_fields)])
            )
        try:  # Kubernetes parses each term separately
            matches(NodeSelector(node_selector_terms=(term,)), Node())
        except NodeSelectorError:
            return frozenset()
        if not (term.match_expressions or term.match_fields):
            return frozenset()
        for field in term.match_fields:
            named_nodes = self._every & set(field.values) if field.key == "metadata.name" else frozenset[str]()
            nodes = nodes & named_nodes if field.operator == "In" else nodes - named_nodes
        for expression in term.match_expressions:
            values = self._of_label(expression.key, budget)
            selected_nodes = frozenset[str]().union(
                *[values[value] for value in _selected_values(expression, values) if value in values]
            )
            nodes = (
                nodes - selected_nodes if expression.operator in ("NotIn", "DoesNotExist") else nodes & selected_nodes
            )
        return nodes


def _selected_values(requirement: NodeSelectorRequirement, values: Iterable[str]) -> Iterable[str]:
    """Find the values of a label that a requirement selects (In, Exists, Gt, Lt) or excludes (NotIn, DoesNotExist)."""
    if requirement.operator in ("Exists", "DoesNotExist"):
        return values
    if requirement.operator in ("In", "NotIn"):
        return requirement.values
    bound = int(requirement.values[0])
    numbers = [value for value in values if (number := int64(value)) is not None and number != bound]
    return [value for value in numbers if (int(value) > bound) == (requirement.operator == "Gt")]


@lru_cache(maxsize=1)
def node_index(fleet: Inventory) -> NodeIndex:
    """Return the index of a fleet, cached by the fleet's identity."""
    return NodeIndex(fleet.nodes)


def reach_ignoring_taints(constraints: Mapping[str, Json], state: State, budget: Budget) -> frozenset[str]:
    """Return the nodes that fit a pod's constraints if taints are ignored.

    They are existing nodes, nodes that an autoscaler can create, and all nodes that are newer than the inventory.
    """
    ignoring_taints = {**constraints, "tolerations": _ANY_TAINT}
    nodes = node_index(state.fleet).reach(ignoring_taints, budget).nodes
    if state.stock is not None:
        nodes |= state.stock.nodes.keys() - state.fleet.nodes.keys()
    if state.prospects is not None:
        nodes |= NodeIndex(state.prospects.nodes).reach(ignoring_taints, budget).nodes
    return nodes


def reach_templates(constraints: Mapping[str, Json], configuration: Configuration) -> list[NodeTemplate]:
    """Return the declared templates of nodes that an autoscaler can create, if such a node would fit a pod's constraints."""
    templates = {template.name: template for template in configuration.file.node_templates}
    nodes = {name: Node(metadata=ObjectMeta(name=name, labels=template.labels)) for name, template in templates.items()}
    return [templates[name] for name in sorted(NodeIndex(nodes).reach(constraints).nodes)]
