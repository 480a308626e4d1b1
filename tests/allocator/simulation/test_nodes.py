"""Nodes that are removed or added before the pods of a snapshot are scheduled."""

from msgspec.structs import replace

from allocator.simulation import Snapshot, with_more_nodes, without_nodes
from dra.objects import OwnerReference, Taint
from dra.objects.claim import ResourceClaimConsumerReference
from dra.objects.pod import PodResourceClaimStatus
from tests.allocator.fleets import fleet, gpu, taken
from tests.allocator.simulation.test_snapshot import SINGLE, pending_pod, places
from tests.allocator.simulation.test_snapshot import run as run_
from tests.objects import claim_template, exactly, typed


def run(snapshot):
    return run_(snapshot.stock, *snapshot.pods, claims=snapshot.claims, templates=snapshot.templates)


def held_by(name, node, device, **metadata):
    """Return a pod on a node, and its claim."""
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
    spec = SINGLE.spec.spec
    return running, replace(claim, spec=spec, status=replace(claim.status, reserved_for=(consumer,)))


def scene(nodes, *held, more=()):
    pods, claims = zip(*held, strict=True) if held else ((), ())
    return Snapshot(fleet(nodes, *claims), (*pods, *more), tuple(claims), (SINGLE,))


TWO = {"n0": (gpu("gpu-0"),), "n1": (gpu("gpu-0"), gpu("gpu-1"))}


def test_pods_of_a_removed_node_are_placed_elsewhere():
    snapshot = scene(TWO, held_by("a", "n0", "gpu-0"), held_by("b", "n1", "gpu-0"))
    assert places(run(without_nodes(snapshot, ["n0"]))) == {"a": ("n1", ["gpu-1"])}
    assert places(run(without_nodes(snapshot, ["n1"]))) == {"b": (None, [])}
    assert "n1" not in without_nodes(snapshot, ["n1"]).stock.nodes


def test_a_claim_shared_with_another_node_keeps_its_allocation():
    (a, claim), (b, _) = held_by("a", "n0", "gpu-0"), held_by("b", "n1", "gpu-0")
    other = ResourceClaimConsumerReference(resource="pods", name="b", uid="uid-b")
    both = replace(claim, status=replace(claim.status, reserved_for=(*claim.status.reserved_for, other)))
    after = without_nodes(scene(TWO, (a, both), more=(b,)), ["n0"])
    assert [claim.status.allocation for claim in after.claims] == [both.status.allocation]


def test_pods_without_a_moving_controller_leave_with_their_node():
    daemon = (OwnerReference(kind="DaemonSet", name="d", uid="d"),)
    snapshot = scene(
        TWO,
        held_by("daemon", "n0", "gpu-0", owner_references=daemon),
        held_by("mirror", "n0", "gpu-0", annotations={"kubernetes.io/config.mirror": "x"}),
        held_by("leaving", "n0", "gpu-0", deletion_timestamp="2026-11-20T08:00:00Z"),
        more=(pending_pod("ended", nodeName="n0", phase="Succeeded"),),
    )
    assert without_nodes(snapshot, ["n0"]).pods == ()


def test_nodes_that_are_added_are_idle_and_healthy_copies():
    snapshot = scene(
        TWO, held_by("a", "n0", "gpu-0"), more=[pending_pod(f"w{i}", templates=["single"]) for i in range(5)]
    )
    sick = snapshot.stock.nodes["n0"]
    taints = (Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"), Taint(key="gpu", effect="NoSchedule"))
    labels = {"kubernetes.io/hostname": "n0", "rack": "r"}
    sick = replace(
        sick,
        metadata=replace(sick.metadata, labels=labels),
        spec=replace(sick.spec, taints=taints, unschedulable=True),
    )
    snapshot = replace(snapshot, stock=snapshot.stock.with_object(sick))
    more = with_more_nodes(snapshot, "n0", 2)
    copy = more.stock.nodes["n0-2"]
    assert copy.metadata.labels == {"kubernetes.io/hostname": "n0-2", "rack": "r"}
    assert (copy.spec.taints, copy.spec.unschedulable) == (taints[1:], False)
    added_twice = with_more_nodes(with_more_nodes(scene(TWO, more=snapshot.pods[1:]), "n0", 1), "n0", 1)
    assert {"n0-1", "n0-2"} <= set(added_twice.stock.nodes)
    placed = places(run(added_twice))
    assert {node for node, _ in placed.values()} == {"n0", "n0-1", "n0-2", "n1"}


def test_each_copied_node_has_its_own_pools():
    snapshot = scene(TWO, more=[pending_pod(f"w{i}", templates=["pair"]) for i in range(3)])
    snapshot = replace(snapshot, templates=(typed(claim_template("pair", exactly("gpu", count=2))),))
    simulated = run(with_more_nodes(snapshot, "n1", 2))
    assert {pod.node for pod in simulated.pods} == {"n1", "n1-1", "n1-2"}
    assert len({device for pod in simulated.pods for device in pod.devices}) == 6
