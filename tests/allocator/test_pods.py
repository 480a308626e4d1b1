"""Which pods the allocator places, in which order, and on which nodes their claims permit them."""

import pytest

from allocator import pods
from tests.objects import claim, node, pod, typed


def waiting_pod(name, **further_fields):
    return typed(pod(name, **{"creationTimestamp": "2026-01-01T00:00:00Z", "priority": 0} | further_fields))


def allocated_claim(node_selector=None):
    """Return a claim that is allocated on the nodes of a selector."""
    allocation = {"devices": {}} | ({"nodeSelector": node_selector} if node_selector else {})
    return typed(claim("c", namespace="n", status={"allocation": allocation}))


def node_selector_for(name, operator="In"):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]}


NODE = typed(node("n0"))


def test_pods_are_tried_by_priority_age_namespace_and_name():
    important_pod = waiting_pod("z", priority=5)
    old_pod = waiting_pod("y", creationTimestamp="2025-01-01T00:00:00Z")
    similar_pods = [waiting_pod("b", namespace="a"), waiting_pod("a", namespace="b")]
    sorted_pods = pods.pending([*similar_pods[::-1], old_pod, important_pod])
    assert [pod.metadata.key for pod in sorted_pods] == ["default/z", "default/y", "a/b", "b/a"]


@pytest.mark.parametrize(
    "fields", [{"nodeName": "n0"}, {"schedulingGates": [{"name": "wait"}]}, {"phase": "Succeeded"}]
)
def test_running_finished_and_gated_pods_are_not_pending(fields):
    assert pods.pending([waiting_pod("a", **fields)]) == []


def test_an_allocated_claim_excludes_other_nodes():
    assert pods.claim_obstacle([allocated_claim(), allocated_claim(node_selector_for("n0"))], NODE) == ""
    assert (
        pods.claim_obstacle([allocated_claim(node_selector_for("n1"))], NODE)
        == "node(s) didn't match claim n/c, which is allocated on another node"
    )


def test_an_unreadable_node_selector_of_an_allocation_is_an_obstacle():
    assert pods.claim_obstacle([allocated_claim(node_selector_for("n0", operator="Sideways"))], NODE).startswith(
        "node(s) didn't match claim n/c: "
    )
