"""A simulation schedules the pending pods of a snapshot."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from allocator import all_nodes
from allocator import pods as podfit
from allocator.decisions import Decider
from allocator.simulation.snapshot import Snapshot, simulate
from dra.objects import PodExtendedResourceClaimStatus, PodGroup, ResourceClaim
from dra.objects.claim import DeviceClass
from dra.quantity import Quantity
from dra.wire import convert
from tests.allocator.fleets import DRIVER, claim, fleet, gpu, taken
from tests.allocator.simulation.scenes import (
    ONE_GPU_FLEET,
    ONE_GPU_TEMPLATE,
    TWO_GPUS_TEMPLATE,
    TWO_NODE_FLEET,
    pending_pod,
    places,
    pod_requesting,
    run,
)
from tests.loops import every
from tests.objects import exactly, node, typed


def test_a_device_is_given_to_one_pod_only():
    simulated = run(
        TWO_NODE_FLEET,
        pending_pod("a", templates=["double"]),
        pending_pod("b", templates=["single"]),
        pending_pod("c", templates=["single"]),
        templates=[ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE],
    )
    assert places(simulated) == {"a": ("n1", ["gpu-0", "gpu-1"]), "b": ("n0", ["gpu-0"]), "c": (None, [])}
    assert (
        simulated.totals.pods,
        simulated.totals.placed,
        simulated.totals.unschedulable,
        simulated.totals.devices,
    ) == (3, 2, 1, 3)
    assert simulated.totals.utilisation == 1.0


def test_the_reasons_of_an_unplaced_pod_name_the_holder():
    simulated = run(
        TWO_NODE_FLEET,
        pending_pod("a", templates=["double"]),
        pending_pod("b", templates=["double"]),
        templates=[TWO_GPUS_TEMPLATE],
    )
    refused = simulated.pods[1]
    assert refused.reason.text.startswith("0 of 2 nodes can serve the pod: ")
    assert "in use: held by claim default/a-double" in refused.reason.text


WAITING_PODS = [
    pending_pod("w", templates=["double"]),
    pending_pod("x", templates=["double"]),
    pending_pod("y", templates=["single", "double"]),
    pending_pod("z", templates=["single", "double"]),
]


def test_waiting_pods_get_the_same_reasons_together_and_alone():
    """The two pods with two claims have different claims, so each pod's reasons name its own claims."""
    held_claims = [taken("n1", "gpu-0"), taken("n1", "gpu-1")]
    stock = fleet({"n0": (gpu("gpu-0"),), "n1": (gpu("gpu-0"), gpu("gpu-1"))}, *held_claims)
    objects = {"claims": held_claims, "templates": [ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE]}
    outcomes = run(stock, *WAITING_PODS, **objects).pods
    assert outcomes == tuple(run(stock, pod, **objects).pods[0] for pod in WAITING_PODS)
    assert [outcome.node for outcome in outcomes] == [None] * len(WAITING_PODS)
    assert "given to default/z-single" in outcomes[3].reason.text


def test_a_refusal_is_explained_once_until_its_node_changes(monkeypatch):
    explained_nodes, explain = [], all_nodes.explain
    monkeypatch.setattr(all_nodes, "explain", lambda *asked: explained_nodes.append(asked[2]) or explain(*asked))
    waiting_pods = (
        *WAITING_PODS[:2],
        pending_pod("small", templates=["single"], priority=-1),
        pending_pod("z", templates=["double"], priority=-2),
    )
    snapshot = Snapshot(ONE_GPU_FLEET, waiting_pods, templates=(ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE))
    simulated = simulate(snapshot, Decider())
    assert [outcome.node for outcome in simulated.pods] == [None, None, "n0", None]
    assert explained_nodes == ["n0", "n0"], "n0 must be explained once before and once after the pod `small` is placed"
    assert simulated.pods[3].reason != simulated.pods[0].reason


def test_pods_that_share_a_claim_get_its_devices_once():
    shared = claim("both", exactly("gpu"))
    simulated = run(TWO_NODE_FLEET, pending_pod("a", "both"), pending_pod("b", "both"), claims=[shared])
    assert places(simulated) == {"a": ("n0", ["gpu-0"]), "b": ("n0", [])}


def test_a_claim_named_twice_by_a_pod_is_allocated_once():
    entries = [{"name": name, "resourceClaimName": "c"} for name in ("first", "second")]
    simulated = run(ONE_GPU_FLEET, pending_pod("p", resourceClaims=entries), claims=[claim("c", exactly("gpu"))])
    assert places(simulated) == {"p": ("n0", ["gpu-0"])}


def test_an_allocated_claim_keeps_its_pod_on_its_node():
    on_n1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    allocated_claim = convert(
        {
            "metadata": {"name": "mine", "namespace": "default"},
            "status": {"allocation": {"devices": {"results": []}, "nodeSelector": on_n1}},
        },
        ResourceClaim,
    )
    simulated = run(TWO_NODE_FLEET, pending_pod("a", "mine"), claims=[allocated_claim])
    assert places(simulated) == {"a": ("n1", [])}


@pytest.mark.parametrize(
    ("waiting_pod", "text"),
    [
        (pending_pod("a", "none"), "ResourceClaim none does not exist"),
        (pending_pod("a", templates=["none"]), "ResourceClaimTemplate none does not exist"),
    ],
)
def test_a_pod_waits_for_a_missing_claim_or_template(waiting_pod, text):
    (outcome,) = run(TWO_NODE_FLEET, waiting_pod).pods
    assert (outcome.node, outcome.reason.text, outcome.reason.code) == (None, text, "O115")


def test_a_pod_waits_for_a_missing_class():
    (outcome,) = run(ONE_GPU_FLEET, pending_pod("a", "c"), claims=[claim("c", exactly("none"))]).pods
    assert (outcome.node, outcome.reason.code, outcome.reason.causes) == (None, "O107", ("DeviceClass/none",))
    assert outcome.reason.remedies


def test_a_strategy_chooses_the_node():
    stock = fleet({"n0": (gpu("gpu-0"), gpu("gpu-1")), "n1": (gpu("gpu-0"), gpu("gpu-1"))}, taken("n1", "gpu-0"))
    by_strategy = {
        strategy: places(
            run(stock, pending_pod("a", templates=["single"]), templates=[ONE_GPU_TEMPLATE], strategy=strategy)
        )["a"][0]
        for strategy in ("first-fit", "CompactFirst", "LowLoadFirst")
    }
    assert by_strategy == {"first-fit": "n0", "CompactFirst": "n1", "LowLoadFirst": "n0"}


def test_an_extended_resource_of_a_class_is_allocated_as_devices():
    spec = {
        "extendedResourceName": "example.com/gpu",
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
    }
    stock = TWO_NODE_FLEET.with_object(convert({"metadata": {"name": "whole"}, "spec": spec}, DeviceClass))
    simulated = run(stock, pod_requesting("a", {"example.com/gpu": "2"}), pod_requesting("b", {"example.com/gpu": "2"}))
    assert places(simulated) == {"a": ("n1", ["gpu-0", "gpu-1"]), "b": (None, [])}


def test_a_pod_is_placed_with_its_extended_claims_devices():
    """Without the claim in the pod's status, the simulation would search for two more devices."""
    spec = {"extendedResourceName": "example.com/gpu", "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}  # fmt: skip
    results = [
        {"request": "container-0-request-0", "driver": DRIVER, "pool": "n1", "device": f"gpu-{i}"} for i in range(2)
    ]
    on_n1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    status = {"allocation": {"devices": {"results": results}, "nodeSelector": on_n1}}
    extended_claim = convert(
        {"metadata": {"name": "made", "namespace": "default", "uid": "m"}, "status": status}, ResourceClaim
    )
    stock = TWO_NODE_FLEET.with_object(convert({"metadata": {"name": "whole"}, "spec": spec}, DeviceClass)).with_object(
        extended_claim
    )
    waiting_pod = pod_requesting("a", {"example.com/gpu": "2"})
    pod_with_status = replace(waiting_pod, status=replace(waiting_pod.status, extended_resource_claim_status=PodExtendedResourceClaimStatus(resource_claim_name="made")))  # fmt: skip
    assert places(run(stock, waiting_pod, claims=[extended_claim]))["a"][0] is None
    assert places(run(stock, pod_with_status, claims=[extended_claim]))["a"][0] == "n1"


# ---- conditions other than devices


def first_barrier(pod, node_, used):
    return next(map(str, podfit.barriers(pod)(node_, used)), "")


def zoned_node(**fields):
    return typed(node("n0", labels={"zone": "a"}, **fields))


ALLOCATABLE_CPU = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "2"}}}


@every(
    ("pod", "node_", "refusal"),
    [
        (pending_pod("a"), zoned_node(), ""),
        (pending_pod("a"), zoned_node(unschedulable=True), "node(s) were unschedulable"),
        (pending_pod("a"), zoned_node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), "node(s) had untolerated taint(s): k=v:NoSchedule"),
        (pending_pod("a"), zoned_node(taints=[{"key": "k", "effect": "PreferNoSchedule"}]), ""),
        (pending_pod("a", tolerations=[{"key": "k", "operator": "Exists"}]), zoned_node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]), ""),
        (pending_pod("a", nodeSelector={"zone": "b"}), zoned_node(), "node(s) didn't match Pod's node affinity/selector: zone=b"),
        (pending_pod("a", nodeSelector={"zone": "a"}), zoned_node(), ""),
        (pod_requesting("a", {"cpu": "5"}), zoned_node(**ALLOCATABLE_CPU), "Insufficient cpu"),
        (pod_requesting("a", {"cpu": "4"}), zoned_node(**ALLOCATABLE_CPU), ""),
        (pod_requesting("a", {"vendor.com/gpu": "1"}), zoned_node(**ALLOCATABLE_CPU), "Insufficient vendor.com/gpu"),
        (pod_requesting("a", {"vendor.com/gpu": "1"}), zoned_node(), "Insufficient vendor.com/gpu"),
        (pod_requesting("a", {"cpu": "5"}), zoned_node(), ""),
    ],
)  # fmt: skip
def test_a_node_accepts_a_pod_or_names_the_reason(pod, node_, refusal):
    assert first_barrier(pod, node_, {}) == refusal


def test_required_node_affinity_counts():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    assert (
        first_barrier(pending_pod("a", affinity=required), zoned_node(), {})
        == "node(s) didn't match Pod's node affinity/selector"
    )


def test_cpu_requested_by_running_pods_is_not_available():
    running = pod_requesting("r", {"cpu": "3"}, nodeName="n0")
    used_by_node = podfit.total([running, pod_requesting("done", {"cpu": "3"}, nodeName="n0", phase="Succeeded")])
    assert (
        first_barrier(pod_requesting("a", {"cpu": "2"}), zoned_node(**ALLOCATABLE_CPU), used_by_node["n0"])
        == "Insufficient cpu"
    )
    assert first_barrier(pod_requesting("a", {"cpu": "1"}), zoned_node(**ALLOCATABLE_CPU), used_by_node["n0"]) == ""


def test_init_containers_count_by_maximum_and_sidecars_add():
    def container(cpu, **fields):
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields}

    pod = pending_pod(
        "a",
        containers=[container("1")],
        initContainers=[container("1", restartPolicy="Always"), container("3")],
    )
    assert podfit.requests(pod)["cpu"] == 4 * 10**9


@pytest.mark.parametrize("names", list(permutations(["pods", "memory", "vendor.com/gpu", "cpu"])))
def test_lacking_resources_are_listed_in_the_order_of_kube_scheduler(names):
    """kube-scheduler sorts the reasons (`FitError.Error` in pkg/scheduler/framework/types.go)."""
    pod = pod_requesting("a", {name: "5" for name in names if name != "pods"})
    allocatable = {name: Quantity.parse("0" if name == "pods" else "4") for name in names}
    full_node = zoned_node()
    full_node = replace(full_node, status=replace(full_node.status, allocatable=allocatable))
    reasons = [str(barrier) for barrier in podfit.barriers(pod)(full_node, {})]
    assert reasons == ["Insufficient cpu", "Insufficient memory", "Insufficient vendor.com/gpu", "Too many pods"]


def gang(least):
    return convert({"spec": {"schedulingPolicy": {"gang": {"minCount": least}}}}, PodGroup)


@pytest.mark.parametrize(("least", "placed"), [(2, []), (1, ["g-0"])])
def test_a_gang_is_placed_together_or_not_at_all(least, placed):
    """One of two pods of the gang fits. A pod outside of the gang gets the device that the gang does not take."""
    members = [
        pending_pod(f"g-{i}", templates=["single"], priority=9, schedulingGroup={"podGroupName": "g"}) for i in (0, 1)
    ]
    other = pending_pod("other", templates=["single"])
    snapshot = Snapshot(
        ONE_GPU_FLEET, (*members, other), templates=(ONE_GPU_TEMPLATE,), groups={"default/g": gang(least)}
    )
    simulated = simulate(snapshot, Decider())
    assert [name for name, (node, _) in places(simulated).items() if node] == (placed or ["other"])
    if not placed:
        found = "no placement found for 2 pods of PodGroup default/g together: placed one by one, 1 gets a node"
        first, second, _ = simulated.pods
        assert first.reason.text == found
        assert second.reason.text.startswith(f"{found}; 0 of 1 nodes can serve the pod: ")
        assert (simulated.totals.undecided, simulated.totals.unschedulable) == (2, 0)


def test_a_gang_whose_pods_fit_no_node_is_unschedulable():
    """Of three pods of the gang two request two GPUs, and each node has one. They are placed first."""
    group = {"schedulingGroup": {"podGroupName": "g"}}
    members = [
        *(pending_pod(f"g-{i}", templates=["double"], priority=9, **group) for i in (0, 1)),
        pending_pod("g-2", templates=["single"], **group),
    ]
    templates = (ONE_GPU_TEMPLATE, TWO_GPUS_TEMPLATE)
    simulated = simulate(
        Snapshot(ONE_GPU_FLEET, tuple(members), templates=templates, groups={"default/g": gang(2)}), Decider()
    )
    assert [outcome.reason.text.partition(": ")[0] for outcome in simulated.pods] == [
        *["0 of 1 nodes can serve the pod"] * 2,
        "PodGroup default/g places 2 of its pods together, and at most 1 fit",
    ]
    assert (simulated.totals.undecided, simulated.totals.unschedulable) == (0, 3)


def test_a_gang_counts_its_running_pods():
    group = {"schedulingGroup": {"podGroupName": "g"}}
    running = pending_pod("runs", phase="Running", nodeName="n0", **group)
    waiting = pending_pod("waits", templates=["single"], **group)
    snapshot = Snapshot(ONE_GPU_FLEET, (running, waiting), templates=(ONE_GPU_TEMPLATE,), groups={"default/g": gang(2)})
    simulated = simulate(snapshot, Decider())
    assert simulated.totals.placed == 1
