"""Which pods the allocator places, in which order, and on which nodes their claims permit them."""

import pytest

from allocator import pods
from dra.objects import is_reserved_for
from tests.objects import claim, node, pod, typed


def waiting(name, **fields):
    return typed(pod(name, **{"creationTimestamp": "2026-01-01T00:00:00Z", "priority": 0} | fields))


def claim_on(selector=None, reserved=()):
    """Return a claim that is allocated on the nodes of a selector and reserved for the pods with these UIDs."""
    allocation = {"devices": {}} | ({"nodeSelector": selector} if selector else {})
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    return typed(claim("c", namespace="n", status={"allocation": allocation, "reservedFor": consumers}))


def only_on(name, operator="In"):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]}


NODE = typed(node("here"))


def test_pods_are_tried_by_priority_age_and_name_with_namespace():
    first = waiting("z", priority=5)
    old = waiting("y", creationTimestamp="2025-01-01T00:00:00Z")
    by_name = [waiting("b", namespace="a"), waiting("a", namespace="b")]
    sorted_pods = pods.pending([*by_name[::-1], old, first])
    assert [pod.metadata.key for pod in sorted_pods] == ["default/z", "default/y", "a/b", "b/a"]


@pytest.mark.parametrize("more", [{"nodeName": "here"}, {"schedulingGates": [{"name": "wait"}]}])
def test_pods_with_a_node_or_scheduling_gate_are_not_pending(more):
    assert pods.pending([waiting("a", **more)]) == []


def test_an_allocated_claim_excludes_other_nodes():
    assert pods.claim_obstacle([claim_on(), claim_on(only_on("here"))], NODE) == ""
    assert (
        pods.claim_obstacle([claim_on(only_on("there"))], NODE)
        == "node(s) didn't match claim n/c, which is allocated on another node"
    )


def test_an_unreadable_allocation_is_a_reason():
    assert pods.claim_obstacle([claim_on(only_on("here", operator="Sideways"))], NODE).startswith(
        "node(s) didn't match claim n/c: "
    )


def test_a_claim_is_reserved_for_a_pod_by_its_uid():
    assert is_reserved_for(claim_on(reserved=("u1", "u2")), "u2")
    assert not is_reserved_for(claim_on(reserved=("u1",)), "u2")
