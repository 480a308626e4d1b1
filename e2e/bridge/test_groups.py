"""Pods of a PodGroup (gates GenericWorkload and DRAWorkloadResourceClaims, both off by default in 1.37), placed by our scheduler."""

import pytest

from e2e.actors import fleet
from e2e.actors.bridge import PLUGIN_SCHEDULER, SCHEDULER, Bridge, plugin_configuration
from e2e.actors.workloads import claim, pod, request, template, using, using_template
from e2e.build import program
from e2e.ground.controlplane import ALPHA_GATES, ControlPlane

pytestmark = pytest.mark.real
GATES = ALPHA_GATES | {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
DRIVER = "group.example.com"
CLASS = "group-gpu"
NODES = ("group-0", "group-1")


@pytest.fixture(scope="module")
def groups():
    """A control plane that knows PodGroups, the allocator, our scheduler, and two nodes with one device each."""
    with ControlPlane(name="groups", feature_gates=GATES) as cluster:
        bridge = Bridge(cluster)
        try:
            bridge.prepare()
            bridge.start()
            bridge.start_scheduler()
            cluster.start_scheduler(
                plugin_configuration(bridge.socket), name="group-scheduler", binary=program("drawbridge-scheduler")
            )
            cluster.add_fake_nodes(2, prefix="group-")
            cluster.create(fleet.device_class(CLASS, f"device.driver == '{DRIVER}'"))
            for name in NODES:
                cluster.create(*fleet.slices(DRIVER, name, [fleet.device("gpu-0", {})], by_name=True))
            yield cluster
        finally:
            bridge.remove()


@pytest.fixture
def ours(groups, request):
    """A fresh namespace whose pods are gone when the test is over."""
    name = groups.namespace(f"groups-{abs(hash(request.node.name)) % 10**6}")
    yield name
    groups.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds=0)
    groups.until("the devices are free", lambda: not held(groups, name), 60)


def group(name, namespace, at_least, **spec):
    """A gang: that many of its pods at once, or none."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": at_least}}} | spec,
    }


def member(name, namespace, of, *claims):
    return pod(name, namespace, schedulerName=PLUGIN_SCHEDULER, resourceClaims=list(claims), schedulingGroup={"podGroupName": of})  # fmt: skip


def priority_class(name, value):
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def held(cluster, namespace):
    found = cluster.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return [one["metadata"]["name"] for one in found if one.get("status", {}).get("allocation")]


def placed(cluster, namespace):
    found = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sorted(one["metadata"]["name"] for one in found if one["spec"].get("nodeName"))


def test_a_group_that_fits_is_placed_and_one_that_does_not_holds_nothing(groups, ours):
    """Three pods for two devices: no claim is written. Then two: both, at once."""
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("three", ours, 3),
        *(member(f"t{at}", ours, "three", using_template("one")) for at in range(3)),
    )
    for at in range(3):
        told = groups.wait_unschedulable(ours, f"t{at}")["message"]
        assert "held by" not in told, "no pod of the group holds anything"
    assert (placed(groups, ours), held(groups, ours)) == ([], [])
    groups.create(group("two", ours, 2), *(member(f"p{at}", ours, "two", using_template("one")) for at in range(2)))
    groups.until("both are placed", lambda: placed(groups, ours) == ["p0", "p1"], 60)
    assert len(held(groups, ours)) == 2


def test_a_claim_of_the_group_is_given_once_and_reserved_for_its_pods(groups, ours):
    """The stock scheduler reserves it for the group; we reserve it for each pod, which the kubelet takes as well."""
    entry = {"name": "shared", "resourceClaimName": "shared"}
    groups.create(
        claim("shared", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"s{at}", ours, "pair", {**using("shared"), **entry}) for at in range(2)),
    )
    groups.until("both are placed", lambda: placed(groups, ours) == ["s0", "s1"], 60)
    found = groups.get(f"/apis/resource.k8s.io/v1/namespaces/{ours}/resourceclaims/shared")
    consumers = sorted((one["resource"], one["name"]) for one in found["status"]["reservedFor"])
    assert consumers == [("pods", "s0"), ("pods", "s1")]


def test_a_claim_that_a_group_makes_of_a_template_is_said_not_to_be_the_pods(groups, ours):
    """It belongs to the group. That is a limit (docs/bridge.md), and the pod says so and holds nothing."""
    entry = {"name": "made", "resourceClaimTemplateName": "one"}
    groups.create(
        template("one", ours, request("gpu", CLASS)),
        group("pair", ours, 2, resourceClaims=[entry]),
        *(member(f"m{at}", ours, "pair", entry) for at in range(2)),
    )
    groups.until(
        "a pod is told", lambda: any("was made for PodGroup pair" in said for said in groups.events(ours, "m0")), 60
    )
    assert (placed(groups, ours), held(groups, ours)) == ([], [])


def test_a_gang_has_as_many_less_important_pods_evicted_as_it_needs(groups, ours):
    """Two devices, one a node, held by a pod that matters little and one that matters more than it and less than the gang."""
    groups.create(
        priority_class("gang-urgent", 1000),
        priority_class("gang-usual", 500),
        template("one", ours, request("gpu", CLASS)),
    )
    low = [pod(name, ours, schedulerName=PLUGIN_SCHEDULER, terminationGracePeriodSeconds=0, resourceClaims=[using_template("one")]) for name in ("low", "other")]  # fmt: skip
    low[1]["spec"]["priorityClassName"] = "gang-usual"
    groups.create(*low)
    groups.until("both are placed", lambda: placed(groups, ours) == ["low", "other"], 60)
    members = [member(f"g{at}", ours, "gang", using_template("one")) for at in range(2)]
    for one in members:
        one["spec"]["priorityClassName"] = "gang-urgent"
    groups.create(group("gang", ours, 2, priorityClassName="gang-urgent"), *members)
    groups.until("the gang is placed", lambda: placed(groups, ours) == ["g0", "g1"], 60)
    assert len(held(groups, ours)) == 2


def test_a_stock_scheduler_that_asks_by_the_extender_leaves_a_group_alone_and_says_why(groups, ours):
    """It would look at each member with nothing held for the others, and bind two of three; there are two devices."""
    members = [member(f"x{at}", ours, "trio", using_template("one")) for at in range(3)]
    for one in members:
        one["spec"]["schedulerName"] = SCHEDULER
    groups.create(template("one", ours, request("gpu", CLASS)), group("trio", ours, 3), *members)
    words = "with an extender a group would be placed by half"
    groups.until(
        "they are told", lambda: any(words in said for at in range(3) for said in groups.events(ours, f"x{at}")), 60
    )
    assert (placed(groups, ours), held(groups, ours)) == ([], [])
