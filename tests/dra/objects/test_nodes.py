"""Node selectors: many values, and nodes without the label."""

from dra.objects import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta, matches


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


def selector_with(values, operator="In"):
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="rack", operator=operator, values=values),))
    return NodeSelector(node_selector_terms=(term,))


def test_many_selector_values_are_not_compared_with_each_node():
    values = tuple(Counted(f"rack-{number * 7 % 900}") for number in range(900))
    selectors = [selector_with(values), selector_with(values)]
    nodes = [
        Node(metadata=ObjectMeta(name=f"n{index}", labels={"rack": f"rack-{800 + index}"})) for index in range(300)
    ]
    Counted.compared = 0
    assert [sum(matches(selector, node) for node in nodes) for selector in selectors] == [100, 100]
    # For each selector, 900 values are sorted, and 300 nodes are searched in them. Comparing each node with each value would take 540,000.
    assert Counted.compared < 2 * (900 * 12 + 300 * 12)


def test_a_node_without_the_label_matches_only_not_in():
    bare = Node(metadata=ObjectMeta(name="n"))
    assert not matches(selector_with(("a", "")), bare)
    assert matches(selector_with(("a", ""), "NotIn"), bare)
