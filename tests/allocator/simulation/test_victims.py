"""A simulation names the pods that an unplaced pod would preempt, with their devices, CPUs and quota."""

from msgspec.structs import replace

from allocator.decisions import Decider
from allocator.simulation.snapshot import Snapshot, simulate
from dra.objects import DeviceQuota
from dra.objects.claim import ResourceClaimConsumerReference
from dra.quantity import Quantity
from dra.wire import convert
from tests.allocator.fleets import claim, fleet, gpu, taken
from tests.allocator.simulation.scenes import ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE, pending_pod, run
from tests.objects import exactly


def claim_held_by(owner, node, device):
    """Return a claim that holds a device and is reserved for a pod."""
    allocated_claim = taken(node, device, name=f"c-{owner}")
    consumer = ResourceClaimConsumerReference(resource="pods", name=owner, uid=f"uid-{owner}")
    return replace(allocated_claim, status=replace(allocated_claim.status, reserved_for=(consumer,)))


def with_uid(pod):
    return replace(pod, metadata=replace(pod.metadata, uid=f"uid-{pod.metadata.name}"))


def outcome_on_full_nodes(*priorities, **fields):
    """Simulate a new pod on two nodes of two GPUs, on which pods of these priorities hold one GPU each; return the outcome."""
    held_devices = [("n0", "gpu-0"), ("n0", "gpu-1"), ("n1", "gpu-0"), ("n1", "gpu-1")][: len(priorities)]
    names = [f"p{i}" for i in range(len(priorities))]
    claims = [claim_held_by(name, *held_device) for name, held_device in zip(names, held_devices, strict=True)]
    running_pods = [
        with_uid(
            pending_pod(
                name,
                f"c-{name}",
                nodeName=held_device[0],
                priority=priority,
                phase="Running",
                **container_requesting("1"),
            )
        )
        for name, held_device, priority in zip(names, held_devices, priorities, strict=True)
    ]
    stock = fleet({node: [gpu("gpu-0"), gpu("gpu-1")] for node in ("n0", "n1")}, *claims)
    for name, node_ in stock.nodes.items():
        node_with_cpu = replace(node_, status=replace(node_.status, allocatable={"cpu": Quantity.parse("2")}))
        stock = stock.with_object(node_with_cpu)
        assert stock.nodes[name] is node_with_cpu
    return run(
        stock,
        *running_pods,
        pending_pod("urgent", **fields),
        claims=claims,
        templates=[ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE],
    ).pods[0]


def container_requesting(cpu):
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def test_an_unplaced_pod_names_its_victims():
    outcome = outcome_on_full_nodes(5, 5, 3, 9, priority=10, templates=["single"])
    assert (outcome.node, outcome.victims) == (None, ("default/p2",))
    assert outcome.reason.text.endswith("would fit on n1 if lower-priority default/p2 were evicted")
    assert outcome_on_full_nodes(5, 5, 3, 9, priority=10, templates=["double"]).victims == ("default/p0", "default/p1")


def test_a_pod_that_may_not_preempt_has_no_victims():
    assert outcome_on_full_nodes(5, 5, 5, 5, priority=5, templates=["single"]).victims == ()
    assert outcome_on_full_nodes(5, 20, 5, 20, priority=10, templates=["double"]).victims == ()
    assert outcome_on_full_nodes(1, 1, 1, 1, priority=5, templates=["single"], preemptionPolicy="Never").victims == ()


def test_preemption_also_frees_enough_cpu_for_the_pod():
    """The device needs one victim, but two CPUs need both pods of a node as victims."""
    assert (
        len(outcome_on_full_nodes(1, 1, 9, 9, priority=5, templates=["single"], **container_requesting("1")).victims)
        == 1
    )
    assert (
        len(outcome_on_full_nodes(1, 1, 9, 9, priority=5, templates=["single"], **container_requesting("2")).victims)
        == 2
    )


def test_a_quota_counts_allocations_of_the_same_simulation():
    """Claims are counted one after the other, as when the allocator reserves devices."""
    stock = fleet({"n0": [gpu(f"gpu-{i}") for i in range(5)]})
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"gpu/devices": 3}}}
    waiting_claims = [
        claim("a", exactly("gpu", count=2)),
        claim("b", exactly("gpu", count=2)),
        claim("c", exactly("gpu")),
    ]
    pods = [
        pending_pod(f"p-{waiting_claim.metadata.name}", waiting_claim.metadata.name) for waiting_claim in waiting_claims
    ]
    snapshot = Snapshot(stock.with_all(waiting_claims), tuple(pods), quotas=(convert(quota, DeviceQuota),))
    simulated = simulate(snapshot, Decider())
    assert [pod.node for pod in simulated.pods] == ["n0", None, "n0"]
    refused = simulated.pods[1]
    assert refused.exceeded_quota == {
        "line": "default/q: gpu/devices",
        "requested": "2",
        "hard": "3",
        "used": "2",
        "remaining": "1",
    }
    assert "default/q: gpu/devices" in refused.reason.text
    assert simulated.totals.unschedulable == 1


def test_victims_of_the_namespace_make_room_in_its_quota():
    stock = fleet({"n0": [gpu("gpu-0"), gpu("gpu-1")]})
    low_claim = taken("n0", "gpu-0", name="low")
    consumer = ResourceClaimConsumerReference(resource="pods", name="low", uid="")
    spec = claim("x", exactly("gpu")).spec
    low_claim = replace(low_claim, spec=spec, status=replace(low_claim.status, reserved_for=(consumer,)))
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"gpu/devices": 1}}}
    pods = (pending_pod("low", "low", nodeName="n0", phase="Running"), pending_pod("urgent", "want", priority=5))
    claims = (low_claim, claim("want", exactly("gpu")))
    snapshot = Snapshot(stock.with_all(claims), pods, quotas=(convert(quota, DeviceQuota),))
    [outcome] = simulate(snapshot, Decider()).pods
    assert (outcome.node, outcome.victims, outcome.exceeded_quota["remaining"]) == (None, ("default/low",), "0")
