"""Pods that request a DeviceClass by its extended resource name (KEP-5004): our schedulers beside kube-scheduler, a fence, and a quota.

A fence is a DeviceTaintRule that keeps other schedulers from a driver's devices.
"""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import SCHEDULER
from e2e.actors.client import ApiError, Client
from e2e.actors.taints import until_taint_rules_are_followed
from e2e.actors.workloads import claim, container, limits, pod, request, using
from e2e.bridge.test_doctor import examine
from e2e.bridge.test_plugin import priority_class
from webhook.claims import taint_rule

pytestmark = pytest.mark.real
NODE = "by-name-0"
NAME = "nvidia.com/gpu"
PRIORITY = "by-name-urgent"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


@pytest.fixture(scope="module")
def gpus(control_plane, bridge):
    """One node with two GPUs, the DeviceClass of NVIDIA's chart, which the bridge serves."""
    control_plane.add_fake_nodes(1, prefix="by-name-")
    objects = [
        *fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2), by_name=True),
        *fleet.classes(),
        priority_class(PRIORITY, 1000),
    ]
    control_plane.create(*objects)
    try:
        yield
    finally:
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def team(control_plane, gpus, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("its claims are gone", lambda: not claims(control_plane, namespace), 60)


def gpu_pod(name, namespace, scheduler="default-scheduler", count=1, **spec):
    return pod(name, namespace, container(**limits(**{NAME: count})), schedulerName=scheduler, **spec)


def claims(control_plane, namespace):
    items = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return {
        item["metadata"]["ownerReferences"][0]["name"]: item
        for item in items
        if item["metadata"].get("ownerReferences")
    }


def devices(claim_):
    return [
        result["device"]
        for result in claim_.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]


def codes_of(control_plane, about):
    """The codes of doctor's findings about an object."""
    return [finding["code"] for finding in examine(control_plane) if finding["object"] == about]


def wait_for_reason(control_plane, namespace, name, words):
    control_plane.until(words, lambda: words in control_plane.wait_unschedulable(namespace, name)["message"], 60)


def delete(control_plane, namespace, name):
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def test_our_pod_passes_the_fence_with_its_claim(control_plane, team, created):
    """A pod for kube-scheduler waits until the fence is removed."""
    created(taint_rule(fleet.NVIDIA))
    until_taint_rules_are_followed(control_plane)
    control_plane.create(gpu_pod("theirs", team), gpu_pod("ours", team, SCHEDULER))
    our_pod = control_plane.wait_scheduled(team, "ours", 60)
    control_plane.wait_unschedulable(team, "theirs")
    assert codes_of(control_plane, f"Pod/{team}/theirs") == ["O110"]
    [(owner, our_claim)] = claims(control_plane, team).items()
    assert owner == "ours"
    assert len(devices(our_claim)) == 1
    status = our_pod["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == our_claim["metadata"]["name"]
    # kube-scheduler creates the same claim.
    control_plane.remove(taint_rule(fleet.NVIDIA))
    stock_pod = control_plane.wait_scheduled(team, "theirs", 60)
    stock_claim = claims(control_plane, team)["theirs"]
    assert stock_pod["status"]["extendedResourceClaimStatus"]["requestMappings"] == status["requestMappings"]
    [request_] = our_claim["spec"]["devices"]["requests"]
    del request_["exactly"]["tolerations"]
    assert our_claim["spec"] == stock_claim["spec"]
    assert our_claim["metadata"]["annotations"] == stock_claim["metadata"]["annotations"] == {ANNOTATION: "true"}
    assert sorted(devices(our_claim) + devices(stock_claim)) == ["gpu-0", "gpu-1"]
    assert codes_of(control_plane, f"Driver/{fleet.NVIDIA}") == ["O205"]


def test_a_quota_counts_our_reservations_and_kube_schedulers_claims(control_plane, bridge, team, created):
    limit = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "team", "namespace": team}, "spec": {"hard": {f"{fleet.NVIDIA}/devices": 1}}}  # fmt: skip
    created(limit)

    def used():
        lines = bridge.ask("/api/v1/quota")[1].get("quotas", ())
        return [line["used"] for line in lines if line["quota"] == f"{team}/team"]

    control_plane.until("the allocator knows the quota", lambda: used() == ["0"], 30)
    control_plane.create(gpu_pod("core", team))
    control_plane.wait_scheduled(team, "core")
    control_plane.until("the quota counts the claim that kube-scheduler created", lambda: used() == ["1"], 30)
    control_plane.create(gpu_pod("over", team, SCHEDULER))
    wait_for_reason(control_plane, team, "over", "quota")
    delete(control_plane, team, "core")
    control_plane.wait_scheduled(team, "over", 60)
    assert used() == ["1"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", SCHEDULER])
def test_plugin_nodes_and_dra_nodes_serve_the_same_resource(control_plane, team, scheduler):
    plugin_nodes = control_plane.add_fake_nodes(1, prefix="by-name-plugin-", allocatable={NAME: "3"})
    try:
        control_plane.create(gpu_pod("both", team, scheduler, count=2, nodeSelector={"kubernetes.io/hostname": NODE}))
        assert control_plane.wait_scheduled(team, "both", 60)["spec"]["nodeName"] == NODE
        assert len(devices(claims(control_plane, team)["both"])) == 2
        control_plane.create(gpu_pod("more", team, scheduler, count=3))
        placed = control_plane.wait_scheduled(team, "more", 60)
        assert placed["spec"]["nodeName"] == plugin_nodes[0]
        assert "extendedResourceClaimStatus" not in placed["status"]
        assert claims(control_plane, team).keys() == {"both"}
        control_plane.create(gpu_pod("none", team, scheduler))
        control_plane.wait_unschedulable(team, "none")
        delete(control_plane, team, "both")
        assert control_plane.wait_scheduled(team, "none", 60)["spec"]["nodeName"] == NODE
    finally:
        control_plane.delete(f"/api/v1/namespaces/{team}/pods", gracePeriodSeconds=0)
        control_plane.delete(f"/api/v1/nodes/{plugin_nodes[0]}")


def expensive_claim(name, namespace):
    """A claim for a NIC, with 32 expensive selectors that compute 3,600 sums each."""
    numbers = str(list(range(60)))
    expressions = [
        f"{numbers}.all(x, {numbers}.all(y, x + y + {index} != -{len(name)})) && device.driver == '{fleet.DRANET}'"
        for index in range(32)
    ]
    return claim(
        name,
        namespace,
        request("nic", "dranet", selectors=[{"cel": {"expression": expression}} for expression in expressions]),
    )


def test_a_pod_for_a_device_plugin_gets_no_claim(control_plane, team, created):
    """The pod before it fits a device, but selects a node that does not exist.

    The cached answer for that pod must not be used for this pod: with a claim, this pod would not get the plugin's device.
    """
    [plugin_node] = control_plane.add_fake_nodes(1, prefix="by-name-dear-", allocatable={NAME: "8"})
    try:
        for node in (NODE, plugin_node):
            created(*fleet.slices(fleet.DRANET, node, fleet.dranet_nics(8), by_name=True))
        control_plane.create(gpu_pod("both", team, SCHEDULER, count=2, nodeSelector={"kubernetes.io/hostname": NODE}))
        control_plane.wait_scheduled(team, "both", 60)
        for name in ("p", "pp", "ppp", "pppp"):
            control_plane.create(expensive_claim(name, team), claim(f"before-{name}", team, request("nic", "dranet")))
            fields = {"schedulerName": SCHEDULER, "resourceClaims": [using(f"before-{name}")]}
            control_plane.create(pod(f"before-{name}", team, node="nowhere", **fields))
            control_plane.wait_unschedulable(team, f"before-{name}")
            control_plane.create(gpu_pod(name, team, SCHEDULER, resourceClaims=[using(name)]))
            placed = control_plane.wait_scheduled(team, name, 60)
            assert placed["spec"]["nodeName"] == plugin_node
            assert "extendedResourceClaimStatus" not in placed["status"]
        assert claims(control_plane, team).keys() == {"both"}
    finally:
        control_plane.delete(f"/api/v1/namespaces/{team}/pods", gracePeriodSeconds=0)
        control_plane.delete(f"/api/v1/nodes/{plugin_node}")


def test_pods_with_extended_resources_are_evicted_for_a_higher_priority(control_plane, team):
    """It does not matter which scheduler placed them."""
    at_once = {"terminationGracePeriodSeconds": 0}
    control_plane.create(gpu_pod("core", team, **at_once), gpu_pod("ours", team, SCHEDULER, **at_once))
    for name in ("core", "ours"):
        control_plane.wait_scheduled(team, name)
    control_plane.create(gpu_pod("urgent", team, SCHEDULER, count=2, priorityClassName=PRIORITY))
    control_plane.wait_scheduled(team, "urgent", 60)
    [(owner, claim_)] = claims(control_plane, team).items()
    assert (owner, sorted(devices(claim_))) == ("urgent", ["gpu-0", "gpu-1"])


def test_an_allocator_creates_only_pod_claims_and_only_while_leading(control_plane, bridge, team):
    unowned = claim("any", team, request("gpu", fleet.NVIDIA))
    [owner] = control_plane.create(gpu_pod("p", team, schedulingGates=[{"name": "example.com/later"}]))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"], "controller": True}
    pod_claim = unowned | {
        "metadata": unowned["metadata"] | {"annotations": {ANNOTATION: "true"}, "ownerReferences": [reference]}
    }
    leader, stranger = (
        Client(control_plane.url, bridge.token(name), control_plane.ca) for name in ("allocator-0", "no-replica")
    )
    try:
        with pytest.raises(ApiError, match="create those for extended resources of a pod"):
            leader.create(unowned, dryRun="All")
        with pytest.raises(ApiError, match="does not hold the lease"):
            stranger.create(pod_claim, dryRun="All")
        leader.create(pod_claim, dryRun="All")
    finally:
        leader.close()
        stranger.close()
