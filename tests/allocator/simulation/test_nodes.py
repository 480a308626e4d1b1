"""Nodes that are removed or added before the pods of a snapshot are scheduled."""

from msgspec.structs import replace

from allocator.simulation import Snapshot, with_more_nodes, without_nodes
from dra.objects import OwnerReference, Taint
from dra.objects.claim import ResourceClaimConsumerReference
from dra.objects.pod import PodResourceClaimStatus
from tests.allocator.fleets import fleet, gpu, taken
from tests.allocator.simulation.scenes import ONE_GPU_TEMPLATE, pending_pod, places, run
from tests.objects import claim_template, exactly, typed


def simulate_snapshot(snapshot):
    return run(snapshot.stock, *snapshot.pods, templates=snapshot.templates)


def pod_with_device(name, node, device, **metadata):
    """Return a running pod, and the pod's claim, which holds a device of the node."""
    running = pending_pod(name, templates=["single"], nodeName=node, phase="Running")
    running = replace(
        running,
        metadata=replace(running.metadata, uid=f"uid-{name}", **metadata),
        status=replace(
            running.status,
            resource_claim_statuses=(PodResourceClaimStatus(name="single", resource_claim_name=f"{name}-single"),),
        ),
    )
    claim = taken(node, device, name=f"{name}-single")
    consumer = ResourceClaimConsumerReference(resource="pods", name=name, uid=f"uid-{name}")
    spec = ONE_GPU_TEMPLATE.spec.spec
    return running, replace(claim, spec=spec, status=replace(claim.status, reserved_for=(consumer,)))


def snapshot_of(nodes, *pods_with_claims, other_pods=()):
    pods, claims = zip(*pods_with_claims, strict=True) if pods_with_claims else ((), ())
    return Snapshot(fleet(nodes, *claims), (*pods, *other_pods), (ONE_GPU_TEMPLATE,))


TWO_NODES = {"n0": (gpu("gpu-0"),), "n1": (gpu("gpu-0"), gpu("gpu-1"))}


def test_pods_of_a_removed_node_are_scheduled_again():
    snapshot = snapshot_of(TWO_NODES, pod_with_device("a", "n0", "gpu-0"), pod_with_device("b", "n1", "gpu-0"))
    assert places(simulate_snapshot(without_nodes(snapshot, ["n0"]))) == {"a": ("n1", ["gpu-1"])}
    assert places(simulate_snapshot(without_nodes(snapshot, ["n1"]))) == {"b": (None, [])}
    assert "n1" not in without_nodes(snapshot, ["n1"]).stock.nodes


def test_a_claim_shared_with_a_pod_elsewhere_keeps_its_allocation():
    (pod_on_n0, claim), (pod_on_n1, _) = pod_with_device("a", "n0", "gpu-0"), pod_with_device("b", "n1", "gpu-0")
    second_consumer = ResourceClaimConsumerReference(resource="pods", name="b", uid="uid-b")
    shared_claim = replace(
        claim, status=replace(claim.status, reserved_for=(*claim.status.reserved_for, second_consumer))
    )
    remaining = without_nodes(snapshot_of(TWO_NODES, (pod_on_n0, shared_claim), other_pods=(pod_on_n1,)), ["n0"])
    assert [claim.status.allocation for claim in remaining.stock.claims.values()] == [shared_claim.status.allocation]


def test_pods_that_no_controller_recreates_elsewhere_vanish_with_their_node():
    daemon_set_owner = (OwnerReference(kind="DaemonSet", name="d", uid="d"),)
    snapshot = snapshot_of(
        TWO_NODES,
        pod_with_device("daemon", "n0", "gpu-0", owner_references=daemon_set_owner),
        pod_with_device("mirror", "n0", "gpu-0", annotations={"kubernetes.io/config.mirror": "x"}),
        pod_with_device("leaving", "n0", "gpu-0", deletion_timestamp="2026-11-20T08:00:00Z"),
        other_pods=(pending_pod("ended", nodeName="n0", phase="Succeeded"),),
    )
    assert without_nodes(snapshot, ["n0"]).pods == ()


def test_nodes_that_are_added_are_idle_and_healthy_copies():
    snapshot = snapshot_of(
        TWO_NODES,
        pod_with_device("a", "n0", "gpu-0"),
        other_pods=[pending_pod(f"w{i}", templates=["single"]) for i in range(5)],
    )
    unhealthy_node = snapshot.stock.nodes["n0"]
    taints = (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), Taint(key="gpu", effect="NoSchedule"))
    labels = {"kubernetes.io/hostname": "n0", "rack": "r"}
    unhealthy_node = replace(
        unhealthy_node,
        metadata=replace(unhealthy_node.metadata, labels=labels),
        spec=replace(unhealthy_node.spec, taints=taints, unschedulable=True),
    )
    snapshot = replace(snapshot, stock=snapshot.stock.with_object(unhealthy_node))
    snapshot_with_copies = with_more_nodes(snapshot, "n0", 2)
    copy = snapshot_with_copies.stock.nodes["n0-2"]
    assert copy.metadata.labels == {"kubernetes.io/hostname": "n0-2", "rack": "r"}
    assert (copy.spec.taints, copy.spec.unschedulable) == (taints[1:], False)
    snapshot_with_two_copies = with_more_nodes(
        with_more_nodes(snapshot_of(TWO_NODES, other_pods=snapshot.pods[1:]), "n0", 1), "n0", 1
    )
    assert {"n0-1", "n0-2"} <= set(snapshot_with_two_copies.stock.nodes)
    places_of_pods = places(simulate_snapshot(snapshot_with_two_copies))
    assert {node for node, _ in places_of_pods.values()} == {"n0", "n0-1", "n0-2", "n1"}


def test_each_copied_node_has_its_own_pools():
    snapshot = snapshot_of(TWO_NODES, other_pods=[pending_pod(f"w{i}", templates=["pair"]) for i in range(3)])
    snapshot = replace(snapshot, templates=(typed(claim_template("pair", exactly("gpu", count=2))),))
    simulated = simulate_snapshot(with_more_nodes(snapshot, "n1", 2))
    assert {pod.node for pod in simulated.pods} == {"n1", "n1-1", "n1-2"}
    assert len({device for pod in simulated.pods for device in pod.devices}) == 6
