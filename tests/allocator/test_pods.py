"""Which pods the allocator places, in which order, and on which nodes their claims permit them."""

import pytest

from allocator import pods
from dra.objects import is_reserved_for
from tests.objects import claim, node, pod, typed


def waiting_pod(name, **further_fields):
    return typed(pod(name, **{"creationTimestamp": "2026-01-01T00:00:00Z", "priority": 0} | further_fields))


def allocated_claim(node_selector=None, reserved_for=()):
    """Return a claim that is allocated on the nodes of a selector and reserved for the pods with these UIDs."""
    allocation = {"devices": {}} | ({"nodeSelector": node_selector} if node_selector else {})
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved_for]
    return typed(claim("c", namespace="n", status={"allocation": allocation, "reservedFor": consumers}))


def node_selector_for(name, operator="In"):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]}


NODE = typed(node("n0"))


def test_pods_are_tried_by_priority_age_namespace_and_name():
    important_pod = waiting_pod("z", priority=5)
    old_pod = waiting_pod("y", creationTimestamp="2025-01-01T00:00:00Z")
    similar_pods = [waiting_pod("b", namespace="a"), waiting_pod("a", namespace="b")]
    sorted_pods = pods.pending([*similar_pods[::-1], old_pod, important_pod])
    assert [pod.metadata.key for pod in sorted_pods] == ["default/z", "default/y", "a/b", "b/a"]


@pytest.mark.parametrize("fields", [{"nodeName": "n0"}, {"schedulingGates": [{"name": "wait"}]}])
def test_pods_with_a_node_or_scheduling_gate_are_not_pending(fields):
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


def test_a_claim_is_reserved_for_a_pod_by_its_uid():
    assert is_reserved_for(allocated_claim(reserved_for=("u1", "u2")), "u2")
    assert not is_reserved_for(allocated_claim(reserved_for=("u1",)), "u2")
