"""What the allocator gives to pods with claims, on a real control plane."""

import pytest

from dra.policy import FENCE_TOLERATION
from dra.wire import builtins
from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.taints import until_taint_rules_are_followed
from e2e.actors.workloads import claim, container, limits, pod, request, template, using, using_template
from e2e.bridge import gpu_nodes
from e2e.bridge.gpu_nodes import (
    CLASS,
    NODES,
    SHARED,
    allocate_and_free,
    claim_pod,
    claims_of,
    delete,
    devices,
    read_claim,
    until_reason,
)
from e2e.ground.node import TEST_DRIVER
from tests.limits import PATIENCE
from webhook.claims import taint_rule

pytestmark = pytest.mark.real
gpus, ours = gpu_nodes.gpus, gpu_nodes.ours
STRATEGY = "drawbridge.dev/strategy"


def test_a_pod_gets_and_frees_the_devices_of_its_claims(control_plane, gpus, ours):
    claims = allocate_and_free(control_plane, ours)
    assert all(claim_["status"]["allocation"]["allocationTimestamp"] for claim_ in claims)


def test_pods_share_a_claim_and_claims_share_a_device(control_plane, gpus, ours):
    """Two pods use one claim. Two claims with 16Gi each fit on one GPU of 40Gi; the third waits until one of them is deleted."""
    capacity = {"requests": {"memory": "16Gi", "cores": "30"}}
    control_plane.create(
        claim("together", ours, request("gpu", CLASS)),
        claim_pod("a", ours, using("together")),
        claim_pod("b", ours, using("together")),
    )
    assert control_plane.wait_scheduled(ours, "a")["spec"]["nodeName"] == control_plane.wait_scheduled(ours, "b")["spec"]["nodeName"]  # fmt: skip
    claim_ = read_claim(control_plane, ours, "together")
    assert sorted(consumer["name"] for consumer in claim_["status"]["reservedFor"]) == ["a", "b"]
    for index in range(3):
        control_plane.create(
            claim(f"share-{index}", ours, request("gpu", SHARED, capacity=capacity)),
            claim_pod(f"s{index}", ours, using(f"share-{index}")),
        )
        if index < 2:
            control_plane.wait_scheduled(ours, f"s{index}")
    until_reason(control_plane, ours, "s2", "capacity")
    delete(control_plane, ours, "s0")
    control_plane.wait_scheduled(ours, "s2", 60)


def test_partitions_of_one_gpu_are_allocated_until_counters_are_used(control_plane, gpus, ours, created):
    parts = [
        fleet.device(f"part-{index}", {"kind": "part"}, consumesCounters=[fleet.consumes("gpu", slices=amount)])
        for index, amount in enumerate((4, 4, 2))
    ]
    created(
        *fleet.counted_slices("parts.example.com", NODES[1], {"gpu": {"slices": 8}}, parts, by_name=True),
        fleet.device_class("bridge-part", "device.driver == 'parts.example.com'"),
    )
    for index in range(3):
        control_plane.create(claim(f"part-{index}", ours, request("part", "bridge-part")), claim_pod(f"p{index}", ours, using(f"part-{index}")))  # fmt: skip
        if index < 2:
            control_plane.wait_scheduled(ours, f"p{index}")
    control_plane.wait_unschedulable(ours, "p2")
    allocated = [device for claim_ in claims_of(control_plane, ours) for device in devices(claim_)]
    assert len(allocated) == len(set(allocated)) == 2


def test_an_extended_resource_pod_gets_a_claim_from_the_allocator(control_plane, gpus, ours, created):
    """DynamicResources is disabled, so no other component creates this claim."""
    created(fleet.device_class("bridge-extended", f"device.driver == '{fleet.NVIDIA}'", "bridge.example.com/gpu"))
    control_plane.create(
        claim_pod("plain", ours),
        claim_pod("named", ours, containers=[container(**limits(**{"bridge.example.com/gpu": 1}))]),
    )
    control_plane.wait_scheduled(ours, "plain")
    status = control_plane.wait_scheduled(ours, "named", 60)["status"]
    assert (
        len(devices(read_claim(control_plane, ours, status["extendedResourceClaimStatus"]["resourceClaimName"]))) == 1
    )


def test_fenced_devices_go_only_to_our_claims_with_the_toleration(control_plane, gpus, ours, created):
    created(
        *fleet.slices("fenced.example.com", NODES[0], [fleet.device("only", {"kind": "x"})], by_name=True),
        fleet.device_class("bridge-fenced", "device.driver == 'fenced.example.com'"),
        taint_rule("fenced.example.com"),
    )
    until_taint_rules_are_followed(control_plane)
    control_plane.create(claim("theirs", ours, request("x", "bridge-fenced")), pod("theirs", ours, resourceClaims=[using("theirs")]))  # fmt: skip
    control_plane.wait_unschedulable(ours, "theirs")
    passing = {"tolerations": [builtins(FENCE_TOLERATION)]}
    control_plane.create(claim("mine", ours, request("x", "bridge-fenced", **passing)), claim_pod("mine", ours, using("mine")))  # fmt: skip
    control_plane.wait_scheduled(ours, "mine")
    assert devices(read_claim(control_plane, ours, "theirs")) == []


def expensive_claim(name, namespace, number):
    """A claim with 32 expensive selectors, which compute 3,600 sums each and match no device."""
    numbers = list(range(60))
    sums = [f"{numbers}.all(x, {numbers}.all(y, x + y + {index} != -{number}))" for index in range(32)]
    expressions = [*sums[1:], f"{sums[0]} && device.driver == 'none.example.com'"]
    return claim(
        name,
        namespace,
        request("gpu", CLASS, selectors=[{"cel": {"expression": expression}} for expression in expressions]),
    )


def test_expensive_selectors_delay_no_pod_of_another_namespace(control_plane, bridge, gpus, ours):
    """40 pods with claims that take a minute to evaluate come first; the pod of the other namespace is placed while most of them wait."""
    hog, hogs = control_plane.namespace("hog"), [f"hog-{at}" for at in range(1, 41)]
    control_plane.create(*(expensive_claim(name, hog, at) for at, name in enumerate(hogs, 1)))
    control_plane.create(*(claim_pod(name, hog, using(name)) for name in hogs))
    try:
        control_plane.until(
            "the scheduler has asked for the first expensive claim",
            lambda: count_messages(control_plane, hog, ""),
            PATIENCE,
        )
        control_plane.create(claim("honest", ours, request("gpu", CLASS)), claim_pod("p", ours, using("honest")))
        control_plane.wait_scheduled(ours, "p", PATIENCE)
        searched = count_messages(control_plane, hog, "") - count_messages(control_plane, hog, "take long")
        assert searched < len(hogs) / 2
    finally:
        control_plane.delete(f"/api/v1/namespaces/{hog}/pods", gracePeriodSeconds=0)
        control_plane.remove({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hog}})


def count_messages(control_plane, namespace, words):
    """Return how many pods of a namespace have these words in their last scheduling message."""
    pods = control_plane.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    conditions = [
        condition
        for pod in pods
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled"
    ]
    return sum(words in condition.get("message", "") for condition in conditions)


def test_a_namespace_sets_the_strategy_and_unknown_strategies_wait(control_plane, gpus, ours):
    """The scheduler's own score would select the emptier node; CompactFirst selects the node in use."""
    unknown, strategy = ({STRATEGY: name} for name in ("best", "CompactFirst"))
    control_plane.patch(f"/api/v1/namespaces/{ours}", {"metadata": {"annotations": strategy}})
    for name, node in (("first", NODES[1]), ("second", "")):
        control_plane.create(claim(name, ours, request("gpu", CLASS)), claim_pod(name, ours, using(name), node=node))
        assert control_plane.wait_scheduled(ours, name)["spec"]["nodeName"] == NODES[1]
    misconfigured = claim_pod("odd", ours, using("odd"))
    misconfigured["metadata"]["annotations"] = unknown
    control_plane.create(claim("odd", ours, request("gpu", CLASS)), misconfigured)
    until_reason(control_plane, ours, "odd", "'best'")
    control_plane.patch(f"/api/v1/namespaces/{ours}/pods/odd", {"metadata": {"annotations": strategy}})
    control_plane.wait_scheduled(ours, "odd")


def test_events_of_a_pod_name_no_object_of_another_namespace(control_plane, gpus, ours):
    """A pod of another namespace holds most of a shared GPU. The rest is too small for our pod, whose events may not name that pod."""
    other_namespace = control_plane.namespace("bridge-theirs")
    capacity = {"memory": "30Gi", "cores": "10"}
    try:
        for namespace in (other_namespace, ours):
            control_plane.create(claim("much", namespace, request("gpu", SHARED, capacity={"requests": capacity})))
        control_plane.create(claim_pod("secret", other_namespace, using("much")))
        control_plane.wait_scheduled(other_namespace, "secret")
        control_plane.create(claim_pod("late", ours, using("much")))
        control_plane.wait_unschedulable(ours, "late")
        control_plane.until("an event mentions another namespace", lambda: any("another namespace" in event for event in control_plane.events(ours, "late")), 60)  # fmt: skip
        assert "bridge-theirs" not in repr(control_plane.events(ours, "late"))
    finally:
        control_plane.delete(f"/api/v1/namespaces/{other_namespace}/pods", gracePeriodSeconds=0)


# On a real node


@pytest.mark.node
def test_a_container_sees_its_allocated_device(control_plane, bridge, node_cluster, namespace, created):
    """Our scheduler places the pod, Kubernetes' test driver prepares the device, and CDI sets the container's environment."""
    created(
        fleet.device_class("bridge-node", f"device.driver == '{TEST_DRIVER}'"),
        template("one", namespace, request("device", "bridge-node")),
        pod(
            "p",
            namespace,
            container(command="env; echo spoken=yes; sleep 600", resources={"claims": [{"name": "one"}]}),
            node=node_cluster.name,
            schedulerName=SCHEDULER,
            resourceClaims=[using_template("one")],
        ),
    )
    running = control_plane.wait_phase(namespace, "p", "Running")
    [status] = running["status"]["resourceClaimStatuses"]
    variable = f"claim_{status['resourceClaimName']}_device".replace("-", "_")
    assert variable in node_cluster.environment(namespace, "p")
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/p")
    control_plane.until("the claim is gone", lambda: not claims_of(control_plane, namespace), 60)
