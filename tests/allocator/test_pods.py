import pytest

from allocator import pods
from dra.objects import Node, Pod, ResourceClaim, is_reserved_for
from dra.wire import convert


def pod(name, namespace="default", created="2026-01-01T00:00:00Z", priority=0, **more):
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return convert({"metadata": meta, "spec": {"priority": priority, **more}}, Pod)


def claim(selector=None, reserved=()):
    allocation = {"allocation": {"devices": {}, **({"nodeSelector": selector} if selector else {})}}
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    status = {**allocation, "reservedFor": consumers}
    return convert({"metadata": {"name": "c", "namespace": "n"}, "status": status}, ResourceClaim)


def only_on(name, operator="In"):
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]}


NODE = convert({"metadata": {"name": "here"}}, Node)


def test_pods_are_tried_by_priority_age_and_name_with_namespace():
    first = pod("z", priority=5)
    old = pod("y", created="2025-01-01T00:00:00Z")
    by_name = [pod("b", namespace="a"), pod("a", namespace="b")]
    found = pods.pending([*by_name[::-1], old, first])
    assert [one.metadata.key for one in found] == ["default/z", "default/y", "a/b", "b/a"]


@pytest.mark.parametrize("more", [{"nodeName": "here"}, {"schedulingGates": [{"name": "wait"}]}])
def test_pods_that_have_a_node_or_a_scheduling_gate_do_not_wait(more):
    assert pods.pending([pod("a", **more)]) == []


def test_a_claim_that_is_allocated_keeps_its_pod_from_other_nodes():
    assert pods.claim_obstacle([claim(), claim(only_on("here"))], NODE) == ""
    assert pods.claim_obstacle([claim(only_on("there"))], NODE) == "claim n/c is allocated on another node"


def test_an_allocation_that_cannot_be_read_is_a_reason_and_not_an_accident():
    assert pods.claim_obstacle([claim(only_on("here", operator="Sideways"))], NODE).startswith("claim n/c: ")


def test_a_claim_is_reserved_for_a_pod_by_its_uid():
    assert is_reserved_for(claim(reserved=("u1", "u2")), "u2")
    assert not is_reserved_for(claim(reserved=("u1",)), "u2")
