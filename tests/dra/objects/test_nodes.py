"""Node selectors. Values are validated once for all nodes, not once for each node."""

from dra import names
from dra.objects import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta, matches
from dra.wire import convert

VALUES = [f"rack-{number}" for number in range(30)]


def test_selector_values_are_validated_once_for_all_nodes(monkeypatch):
    judged = []
    judge = names.label_value
    monkeypatch.setattr(names, "label_value", lambda text: judged.append(text) or judge(text))
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": VALUES}]}
    selector = convert({"nodeSelectorTerms": [term]}, NodeSelector)
    nodes = [Node(metadata=ObjectMeta(name=f"n{index}", labels={"rack": f"rack-{index}"})) for index in range(100)]
    assert sum(matches(selector, node) for node in nodes) == len(VALUES)
    assert judged == VALUES


class Counted(str):
    """A value that counts how often it is compared."""

    __slots__ = ()

    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    def __lt__(self, other):
        Counted.compared += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


def listing(values, operator="In"):
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="rack", operator=operator, values=values),))
    return NodeSelector(node_selector_terms=(term,))


def test_many_selector_values_are_not_compared_with_each_node():
    values = tuple(Counted(f"rack-{number * 7 % 900}") for number in range(900))
    selectors = [listing(values), listing(values)]
    nodes = [
        Node(metadata=ObjectMeta(name=f"n{index}", labels={"rack": f"rack-{800 + index}"})) for index in range(300)
    ]
    Counted.compared = 0
    assert [sum(matches(selector, node) for node in nodes) for selector in selectors] == [100, 100]
    assert Counted.compared < 2 * (
        900 * 12 + 300 * 12
    )  # it would be 540,000 if each node were compared with each value


def test_a_node_without_the_label_matches_not_in_only():
    bare = Node(metadata=ObjectMeta(name="n"))
    assert not matches(listing(("a", "")), bare)
    assert matches(listing(("a", ""), "NotIn"), bare)
