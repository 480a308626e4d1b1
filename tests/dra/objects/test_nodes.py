"""Node selectors: what is read of them anew for each node."""

from dra import names
from dra.objects import Node, NodeSelector, ObjectMeta, matches
from dra.wire import convert

VALUES = [f"rack-{number}" for number in range(30)]


def test_the_values_of_a_selector_are_judged_once_for_all_nodes(monkeypatch):
    judged = []
    judge = names.label_value
    monkeypatch.setattr(names, "label_value", lambda text: judged.append(text) or judge(text))
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": VALUES}]}
    selector = convert({"nodeSelectorTerms": [term]}, NodeSelector)
    nodes = [Node(metadata=ObjectMeta(name=f"n{at}", labels={"rack": f"rack-{at}"})) for at in range(100)]
    assert sum(matches(selector, node) for node in nodes) == len(VALUES)
    assert judged == VALUES
