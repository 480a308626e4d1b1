"""Placement of a pod: the strategies that score its nodes, and nodes that can hold no further pod."""

import pytest
from msgspec.structs import replace

from allocator.decisions import (
    Decider,
    Outlook,
    PlacementRules,
    placement_of,
)
from allocator.strategies import STRATEGIES, Placement, UnknownStrategy, read_placement
from tests.allocator.decisions.test_decider import allocated_claim, stock_of, typed_pod
from tests.allocator.service import sidecar
from tests.allocator.simulation.test_placement import SpreadRacks

STRATEGY_ANNOTATION = "drawbridge.dev/strategy"


def annotated_pod(annotations):
    return typed_pod("p", "one", annotations=annotations)


def strategies_and_weights(placement):
    return [(part.strategy, part.weight) for part in placement.parts]


def test_a_placement_is_one_strategy_or_several_with_weights():
    assert strategies_and_weights(read_placement("topology")) == [("topology", 1)]
    assert read_placement("topology=7") == read_placement("topology")
    assert strategies_and_weights(read_placement("topology=3, CompactFirst=1")) == [
        ("topology", 3),
        ("CompactFirst", 1),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CompactLast", "there is no strategy 'CompactLast'; the strategies are CompactFirst, LowLoadFirst,"),
        ("", "there is no strategy ''"),
        ("topology=0", "from 1 to 100"),
        ("topology=1e9", "from 1 to 100"),
        ("topology=\u0661", "from 1 to 100"),
        ("topology,topology", "named twice"),
        ("x" * 10_000, "x" * 60 + "'; the strategies are"),
    ],
)
def test_an_invalid_strategy_is_refused_with_a_short_explanation(text, words):
    with pytest.raises(UnknownStrategy) as error:
        read_placement(text)
    assert words in str(error.value)
    assert len(str(error.value)) < 300


def test_the_strategy_of_a_pod_precedes_namespace_and_configuration():
    rules = PlacementRules(read_placement("topology"), {"elsewhere": read_placement("CompactFirst")})
    assert placement_of(annotated_pod({}), {}, rules) is rules.default
    of_namespace = PlacementRules(rules.default, {"default": read_placement("CompactFirst")})
    assert placement_of(annotated_pod({}), {}, of_namespace) is of_namespace.namespaces["default"]
    assert strategies_and_weights(placement_of(annotated_pod({}), {STRATEGY_ANNOTATION: "LowLoadFirst"}, rules)) == [
        ("LowLoadFirst", 1)
    ]
    assert strategies_and_weights(
        placement_of(annotated_pod({STRATEGY_ANNOTATION: "CompactFirst"}), {STRATEGY_ANNOTATION: "LowLoadFirst"}, rules)
    ) == [("CompactFirst", 1)]
    with pytest.raises(UnknownStrategy, match="of Namespace default: there is no strategy"):
        placement_of(annotated_pod({}), {STRATEGY_ANNOTATION: "nonsense"}, rules)


def test_weights_scale_the_node_scores_of_strategies():
    stock = stock_of(sidecar.claim("held"), sidecar.claim("one"), nodes=2)
    used_stock = stock.with_object(allocated_claim("held", 1, stock, "n0", "x"))

    def scores(text):
        return Decider().outlook(typed_pod("p", "one"), used_stock, read_placement(text)).nodes

    compact_scores, spread_scores = scores("CompactFirst"), scores("LowLoadFirst")
    assert (compact_scores, spread_scores) == ({"n0": 100, "n1": 50}, {"n0": 0, "n1": 50})
    assert scores("CompactFirst=3,LowLoadFirst=1") == {"n0": 75, "n1": 50}
    assert scores("CompactFirst=1,LowLoadFirst=3") == {"n0": 25, "n1": 50}


def test_a_node_at_its_pod_limit_is_skipped():
    stock = stock_of(sidecar.claim("one"), nodes=2)
    fleet_outlook = Decider().outlook(typed_pod("p", "one"), stock, Placement(), {"n0": "too many pods"})
    assert [*fleet_outlook.nodes] == ["n1"]
    assert [(reason.text, reason.nodes) for reason in fleet_outlook.reasons] == [("too many pods", ("n0",))]
    outlook_without_node = Decider().outlook(
        typed_pod("p", "one"), stock, Placement(), {"n0": "too many pods", "n1": "too many pods"}
    )
    assert outlook_without_node.outlook is Outlook.FULL


def test_nodes_of_equal_hardware_get_scores_of_their_own_if_the_strategy_reads_other_nodes(monkeypatch):
    """All nodes are idle and equal, except that n1 shares a rack with n0, whose only device is in use."""
    monkeypatch.setitem(STRATEGIES, SpreadRacks.name, SpreadRacks())
    stock = stock_of(sidecar.claim("a"), sidecar.claim("one"), nodes=3, per_node=1)
    stock = stock.with_object(allocated_claim("a", 1, stock, "n0", "x"))
    for name, rack in (("n0", "r0"), ("n1", "r0"), ("n2", "r1")):
        node = stock.nodes[name]
        stock = stock.with_object(replace(node, metadata=replace(node.metadata, labels={"rack": rack})))
    outlook = Decider().outlook(typed_pod("p", "one"), stock, read_placement(SpreadRacks.name))
    assert dict(outlook.nodes) == {"n1": 99, "n2": 100}
