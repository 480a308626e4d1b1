"""Pods that request a DeviceClass by its extended resource name (KEP-5004): our schedulers beside kube-scheduler, a fence, and a quota.

A fence is a DeviceTaintRule that keeps other schedulers from a driver's devices.
"""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, SCHEDULER, plugin_configuration
from e2e.actors.client import ApiError, Client
from e2e.actors.taints import until_rules_are_heard_of
from e2e.actors.workloads import claim, container, limits, pod, request, using
from e2e.bridge.test_doctor import examine
from e2e.bridge.test_plugin import priority_class
from e2e.build import program
from webhook.claims import taint_rule

pytestmark = pytest.mark.real
NODE = "by-name-0"
NAME = "nvidia.com/gpu"
PRIORITY = "by-name-urgent"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
BOTH = (SCHEDULER, PLUGIN_SCHEDULER)


@pytest.fixture(scope="module")
def gpus(control_plane, bridge):
    """One node with two GPUs, the DeviceClass of NVIDIA's chart, and both of our schedulers."""
    plugin = control_plane.start_scheduler(
        plugin_configuration(bridge.socket), name="by-name-scheduler", binary=program("drawbridge-scheduler")
    )
    control_plane.add_fake_nodes(1, prefix="by-name-")
    made = [
        *fleet.slices(fleet.NVIDIA, NODE, fleet.whole_gpus(2), by_name=True),
        *fleet.classes(),
        priority_class(PRIORITY, 1000),
    ]
    control_plane.create(*made)
    try:
        yield
    finally:
        plugin.stop()
        control_plane.remove(*made, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def team(control_plane, gpus, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("its claims are gone", lambda: not claims(control_plane, namespace), 60)


def asking(name, namespace, scheduler="default-scheduler", count=1, **spec):
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


@pytest.mark.parametrize("scheduler", BOTH)
def test_our_pod_passes_the_fence_with_a_claim_like_core(control_plane, team, created, scheduler):
    """A pod for kube-scheduler waits until the fence is removed."""
    created(taint_rule(fleet.NVIDIA))
    until_rules_are_heard_of(control_plane)
    control_plane.create(asking("theirs", team), asking("ours", team, scheduler))
    placed = control_plane.wait_scheduled(team, "ours", 60)
    control_plane.wait_unschedulable(team, "theirs")
    assert codes_of(control_plane, f"Pod/{team}/theirs") == ["O110"]
    [(owner, made)] = claims(control_plane, team).items()
    assert owner == "ours"
    assert len(devices(made)) == 1
    status = placed["status"]["extendedResourceClaimStatus"]
    assert status["resourceClaimName"] == made["metadata"]["name"]
    # kube-scheduler creates the same claim.
    control_plane.remove(taint_rule(fleet.NVIDIA))
    theirs = control_plane.wait_scheduled(team, "theirs", 60)
    core = claims(control_plane, team)["theirs"]
    assert theirs["status"]["extendedResourceClaimStatus"]["requestMappings"] == status["requestMappings"]
    [request_] = made["spec"]["devices"]["requests"]
    del request_["exactly"]["tolerations"]
    assert made["spec"] == core["spec"]
    assert made["metadata"]["annotations"] == core["metadata"]["annotations"] == {ANNOTATION: "true"}
    assert sorted(devices(made) + devices(core)) == ["gpu-0", "gpu-1"]
    assert codes_of(control_plane, f"Driver/{fleet.NVIDIA}") == ["O205"]


@pytest.mark.parametrize("scheduler", BOTH)
def test_a_quota_counts_reservations_of_ours_and_claims_of_core(control_plane, bridge, team, created, scheduler):
    limit = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "team", "namespace": team}, "spec": {"hard": {f"{fleet.NVIDIA}/devices": 1}}}  # fmt: skip
    created(limit)

    def used():
        lines = bridge.ask("/api/v1/quota")[1].get("quotas", ())
        return [line["used"] for line in lines if line["quota"] == f"{team}/team"]

    control_plane.until("the quota is known", lambda: used() == ["0"], 30)
    control_plane.create(asking("core", team))
    control_plane.wait_scheduled(team, "core")
    control_plane.until("core's is counted", lambda: used() == ["1"], 30)
    control_plane.create(asking("over", team, scheduler))
    wait_for_reason(control_plane, team, "over", "quota")
    delete(control_plane, team, "core")
    control_plane.wait_scheduled(team, "over", 60)
    assert used() == ["1"]


@pytest.mark.parametrize("scheduler", ["default-scheduler", *BOTH])
def test_plugin_nodes_and_dra_nodes_serve_the_same_resource(control_plane, team, scheduler):
    there = control_plane.add_fake_nodes(1, prefix="by-name-plugin-", allocatable={NAME: "3"})
    try:
        control_plane.create(asking("both", team, scheduler, count=2, nodeSelector={"kubernetes.io/hostname": NODE}))
        assert control_plane.wait_scheduled(team, "both", 60)["spec"]["nodeName"] == NODE
        assert len(devices(claims(control_plane, team)["both"])) == 2
        control_plane.create(asking("more", team, scheduler, count=3))
        placed = control_plane.wait_scheduled(team, "more", 60)
        assert placed["spec"]["nodeName"] == there[0]
        assert "extendedResourceClaimStatus" not in placed["status"]
        assert claims(control_plane, team).keys() == {"both"}
        control_plane.create(asking("none", team, scheduler))
        control_plane.wait_unschedulable(team, "none")
        delete(control_plane, team, "both")
        assert control_plane.wait_scheduled(team, "none", 60)["spec"]["nodeName"] == NODE
    finally:
        control_plane.delete(f"/api/v1/namespaces/{team}/pods", gracePeriodSeconds=0)
        control_plane.delete(f"/api/v1/nodes/{there[0]}")


def dear(name, namespace):
    """A claim for a NIC, with 32 expensive selectors that compute 3,600 sums each."""
    numbers = str(list(range(60)))
    words = [
        f"{numbers}.all(x, {numbers}.all(y, x + y + {at} != -{len(name)})) && device.driver == '{fleet.DRANET}'"
        for at in range(32)
    ]
    return claim(
        name,
        namespace,
        request("nic", "dranet", selectors=[{"cel": {"expression": word}} for word in words]),
    )


def test_a_pod_for_a_device_plugin_gets_no_claim(control_plane, team, created):
    """The pod before it fits a device, but selects a node that does not exist.

    The cached answer for that pod must not be used for this pod: with a claim, this pod would not get the plugin's device.
    """
    [there] = control_plane.add_fake_nodes(1, prefix="by-name-dear-", allocatable={NAME: "8"})
    try:
        for node in (NODE, there):
            created(*fleet.slices(fleet.DRANET, node, fleet.dranet_nics(8), by_name=True))
        control_plane.create(
            asking("both", team, PLUGIN_SCHEDULER, count=2, nodeSelector={"kubernetes.io/hostname": NODE})
        )
        control_plane.wait_scheduled(team, "both", 60)
        for name in ("p", "pp", "ppp", "pppp"):
            control_plane.create(dear(name, team), claim(f"before-{name}", team, request("nic", "dranet")))
            uses = {"schedulerName": PLUGIN_SCHEDULER, "resourceClaims": [using(f"before-{name}")]}
            control_plane.create(pod(f"before-{name}", team, node="nowhere", **uses))
            control_plane.wait_unschedulable(team, f"before-{name}")
            control_plane.create(asking(name, team, PLUGIN_SCHEDULER, resourceClaims=[using(name)]))
            placed = control_plane.wait_scheduled(team, name, 60)
            assert placed["spec"]["nodeName"] == there
            assert "extendedResourceClaimStatus" not in placed["status"]
        assert claims(control_plane, team).keys() == {"both"}
    finally:
        control_plane.delete(f"/api/v1/namespaces/{team}/pods", gracePeriodSeconds=0)
        control_plane.delete(f"/api/v1/nodes/{there}")


def test_pods_with_extended_resources_are_evicted_for_a_higher_priority(control_plane, team):
    """It does not matter which scheduler placed them."""
    at_once = {"terminationGracePeriodSeconds": 0}
    control_plane.create(asking("core", team, **at_once), asking("ours", team, PLUGIN_SCHEDULER, **at_once))
    for name in ("core", "ours"):
        control_plane.wait_scheduled(team, name)
    control_plane.create(asking("urgent", team, PLUGIN_SCHEDULER, count=2, priorityClassName=PRIORITY))
    control_plane.wait_scheduled(team, "urgent", 60)
    [(owner, made)] = claims(control_plane, team).items()
    assert (owner, sorted(devices(made))) == ("urgent", ["gpu-0", "gpu-1"])


def test_an_allocator_creates_only_pod_claims_and_only_while_leading(control_plane, bridge, team):
    plain = claim("any", team, request("gpu", fleet.NVIDIA))
    [owner] = control_plane.create(asking("p", team, schedulingGates=[{"name": "example.com/later"}]))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner["metadata"]["uid"], "controller": True}
    by_name = plain | {
        "metadata": plain["metadata"] | {"annotations": {ANNOTATION: "true"}, "ownerReferences": [reference]}
    }
    leader, stranger = (
        Client(control_plane.url, bridge.token(name), control_plane.ca) for name in ("allocator-0", "no-replica")
    )
    try:
        with pytest.raises(ApiError, match="create those for extended resources of a pod"):
            leader.create(plain, dryRun="All")
        with pytest.raises(ApiError, match="does not hold the lease"):
            stranger.create(by_name, dryRun="All")
        leader.create(by_name, dryRun="All")
    finally:
        leader.close()
        stranger.close()
