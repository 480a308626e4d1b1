"""Pods with claims, placed by our own scheduler with the plugin Drawbridge and the allocator beside it, on a real control plane."""

import random
import time
from math import inf

import pytest

from cluster import manifests
from e2e.actors import fleet
from e2e.actors.bridge import COMPONENT, SCHEDULER, SECOND_SCHEDULER
from e2e.actors.workloads import claim, pod, request, template, using, using_template

pytestmark = pytest.mark.real
DRIVER = "plugin.example.com"
CLASS = "plugin-gpu"
NODE = "plugin-0"
PRIORITY = "plugin-urgent"
USUAL = "plugin-usual"
PATIENT = "plugin-patient"  # as USUAL, but it evicts no pods


def priority_class(name, value, **fields):
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return kind | {"metadata": {"name": name}, "value": value} | fields


@pytest.fixture(scope="module")
def scheduler(control_plane, bridge):
    """Our scheduler, beside the stock one, and one fake node with two devices."""
    control_plane.add_fake_nodes(1, prefix="plugin-")
    objects = [
        fleet.device_class(CLASS, f"device.driver == '{DRIVER}'", "plugin.example.com/gpu"),
        *fleet.slices(DRIVER, NODE, [fleet.device(f"gpu-{at}", {}) for at in range(2)], by_name=True),
        priority_class(PRIORITY, 1000),
        priority_class(USUAL, 500),
        priority_class(PATIENT, 500, preemptionPolicy="Never"),
    ]
    control_plane.create(*objects)
    try:
        yield bridge.processes["scheduler"]
    finally:
        control_plane.remove(*objects, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture
def ours(control_plane, scheduler, namespace):
    """A namespace whose pods are deleted after the test, because no kubelet ends them."""
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
    control_plane.until("the devices are free", lambda: not held_devices(control_plane, namespace), 30)


def claim_pod(name, namespace, *claims, **spec):
    return pod(name, namespace, schedulerName=SCHEDULER, resourceClaims=list(claims), **spec)


def held_devices(control_plane, namespace):
    """The devices that claims of a namespace hold, with the number of pods of each claim."""
    claims = control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]
    return sorted(
        (result["device"], len(claim["status"].get("reservedFor", ())))
        for claim in claims
        if (allocation := claim.get("status", {}).get("allocation"))
        for result in allocation["devices"]["results"]
    )


def until_reason(control_plane, namespace, name, words):
    """Wait until the scheduler reports these words for a pod; earlier messages are ignored."""

    def message():
        return control_plane.wait_unschedulable(namespace, name)["message"]

    control_plane.until(words, lambda: words in message(), detail=message)


def delete(control_plane, namespace, name):
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds=0)


def test_pods_get_and_reuse_devices_through_the_plugin(control_plane, ours):
    """Two pods share a claim, a third pod has its own, and a fourth waits with a reason until the third is deleted."""
    control_plane.create(
        template("one", ours, request("gpu", CLASS)),
        claim("shared", ours, request("gpu", CLASS)),
        claim_pod("a", ours, using("shared")),
        claim_pod("b", ours, using("shared")),
        claim_pod("c", ours, using_template("one")),
    )
    for name in "abc":
        assert control_plane.wait_scheduled(ours, name)["spec"]["nodeName"] == NODE
    assert [number for _, number in held_devices(control_plane, ours)] in ([1, 2], [2, 1])
    assert len(dict(held_devices(control_plane, ours))) == 2
    control_plane.create(claim_pod("d", ours, using_template("one")))
    until_reason(control_plane, ours, "d", "in use")
    delete(control_plane, ours, "c")
    control_plane.wait_scheduled(ours, "d")


def test_a_pod_waits_for_its_missing_claim_class_and_device(control_plane, ours, created):
    """The claim is created first, then the class, then a device of the class."""
    control_plane.create(claim_pod("early", ours, using("later")), claim("later", ours, request("gpu", "plugin-late")))
    until_reason(control_plane, ours, "early", "does not exist")  # the claim or its class, because watches lag
    created(fleet.device_class("plugin-late", "device.driver == 'late.plugin.example.com'"))
    until_reason(control_plane, ours, "early", "not of the class")
    created(*fleet.slices("late.plugin.example.com", NODE, [fleet.device("gpu", {})], by_name=True))
    control_plane.wait_scheduled(ours, "early")


def test_a_pod_with_an_unknown_strategy_waits_for_a_correction(control_plane, ours):
    misconfigured = claim_pod("odd", ours, using("one"))
    misconfigured["metadata"]["annotations"] = {"drawbridge.dev/strategy": "best"}
    control_plane.create(claim("one", ours, request("gpu", CLASS)), misconfigured)
    until_reason(control_plane, ours, "odd", "'best'")
    correction = {"metadata": {"annotations": {"drawbridge.dev/strategy": "CompactFirst"}}}
    control_plane.patch(f"/api/v1/namespaces/{ours}/pods/odd", correction)
    control_plane.wait_scheduled(ours, "odd")


def test_the_reason_of_a_pinned_pod_names_its_node_first(control_plane, ours, created):
    """The pod's node is full. Ten other nodes have zero to four free devices, which a pod on this node cannot use."""
    control_plane.create(
        template("all", ours, request("gpu", CLASS, count=2)), claim_pod("a", ours, using_template("all"))
    )
    control_plane.wait_scheduled(ours, "a")
    nodes = control_plane.add_fake_nodes(10, prefix="plugin-other-")
    created_nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in nodes]
    try:
        for index, name in enumerate(nodes):
            devices = [fleet.device(f"gpu-{number}", {}) for number in range(index // 2)]
            created(*fleet.slices(DRIVER, name, devices, by_name=True))
        control_plane.create(claim_pod("b", ours, using_template("all"), node=NODE))
        until_reason(control_plane, ours, "b", "2 of 2 devices")
        until_reason(control_plane, ours, "b", " node(s) didn't match Pod's node affinity/selector")
    finally:
        control_plane.remove(*created_nodes)


def test_a_pod_without_devices_is_bound(control_plane, ours):
    control_plane.create(claim_pod("plain", ours))
    control_plane.wait_scheduled(ours, "plain")


def test_a_pod_gets_the_devices_of_a_lower_priority_pod(control_plane, ours):
    """The allocator selects the victim and evicts it."""
    at_once = {"terminationGracePeriodSeconds": 0}
    control_plane.create(
        template("one", ours, request("gpu", CLASS)),
        claim_pod("low", ours, using_template("one"), **at_once),
        claim_pod("usual", ours, using_template("one"), priorityClassName=USUAL, **at_once),
    )
    for name in ("low", "usual"):
        control_plane.wait_scheduled(ours, name)
    control_plane.create(claim_pod("urgent", ours, using_template("one"), priorityClassName=PRIORITY))
    control_plane.wait_scheduled(ours, "urgent")
    assert len(held_devices(control_plane, ours)) == 2
    pods = control_plane.get(f"/api/v1/namespaces/{ours}/pods")["items"]
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["urgent", "usual"]
    words = f"preempted by pod {ours}/urgent"
    control_plane.until(words, lambda: any(words in event for event in control_plane.events(ours, "low")), 20)


@pytest.fixture
def nodes_of_one_pool(control_plane, scheduler, created):
    """Two nodes that can use the same two devices, and no other devices."""
    nodes = control_plane.add_fake_nodes(2, prefix="plugin-reach-")
    driver = "reached.example.com"
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    [pool] = fleet.slices(driver, nodes[0], [fleet.device(f"gpu-{at}", {}) for at in range(2)])
    pool["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    created(pool, fleet.device_class("plugin-reached", f"device.driver == '{driver}'"))
    yield nodes
    control_plane.remove(*({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in nodes))


def test_one_victim_is_evicted_although_the_allocator_is_killed_meanwhile(
    control_plane, bridge, scheduler, ours, nodes_of_one_pool
):
    """After the restart, only pods with a lower priority ask for the device, through another scheduler and from another node."""
    second = bridge.start_scheduler(SECOND_SCHEDULER)
    node, other_node = nodes_of_one_pool
    pods = f"/api/v1/namespaces/{ours}/pods"
    control_plane.create(template("one", ours, request("gpu", "plugin-reached")))
    for name in ("low", "lower"):
        control_plane.create(claim_pod(name, ours, using_template("one"), node=node))
        control_plane.wait_scheduled(ours, name)
    control_plane.create(claim_pod("urgent", ours, using_template("one"), node=node, priorityClassName=PRIORITY))
    nominated = control_plane.until("a node is nominated", lambda: (pod := control_plane.get(f"{pods}/urgent"))["status"].get("nominatedNodeName") and pod)  # fmt: skip
    assert nominated["status"]["nominatedNodeName"] == node
    with scheduler.frozen():
        bridge.processes["allocator-0"].stop(hard=True)
        bridge.start()
        [victim] = [pod["metadata"]["name"] for pod in control_plane.get(pods)["items"] if pod["metadata"].get("deletionTimestamp")]  # fmt: skip
        patient = {
            "schedulerName": SECOND_SCHEDULER,
            "priorityClassName": PATIENT,
            "resourceClaims": [using_template("one")],
        }
        control_plane.create(pod("early", ours, node=other_node, **patient))
        until_reason(control_plane, ours, "early", "in use")
        delete(control_plane, ours, victim)
        control_plane.until(
            "the allocator knows that the device is free",
            lambda: (
                not any(
                    row["claim"].startswith(f"{ours}/{victim}-") for row in bridge.ask("/api/v1/claims")[1]["claims"]
                )
            ),
        )
        control_plane.create(pod("late", ours, node=other_node, **patient))
        until_reason(control_plane, ours, "late", "reserved for a nominated pod")
    control_plane.wait_scheduled(ours, "urgent")
    for name in ("early", "late"):
        assert not control_plane.get(f"{pods}/{name}")["spec"].get("nodeName")
    assert {pod["metadata"]["name"] for pod in control_plane.get(pods)["items"]} == {"low", "lower", "urgent", "early", "late"} - {victim}  # fmt: skip
    second.stop()


class Lane:
    """A node with eight GPUs of its own class, and small pods for a scheduler.

    Twenty pods always wait, and each pod with a GPU ends after one to five seconds.
    """

    def __init__(self, cluster, namespace, scheduler):
        self.cluster, self.namespace, self.scheduler = cluster, namespace, scheduler
        self.name = f"crowded-{scheduler}"
        self.draw = random.Random(scheduler)
        self.end_times, self.count, self.placed_before_big, self.big_is_placed = {}, 0, 0, False
        driver = f"{self.name}.example.com"
        cluster.add_fake_nodes(1, prefix=f"{self.name}-")
        devices = [fleet.device(f"gpu-{at}", {}) for at in range(8)]
        self.objects = [
            *fleet.slices(driver, f"{self.name}-0", devices, by_name=True),
            fleet.device_class(self.name, f"device.driver == '{driver}'"),
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{self.name}-0"}},
        ]
        small, big = (
            template(f"{self.name}-{count}", namespace, request("gpu", self.name, count=count)) for count in (1, 8)
        )
        cluster.create(*self.objects[:2], small, big)

    def add(self, suffix, count):
        entry = using_template(f"{self.name}-{count}")
        self.cluster.create(pod(f"{self.name}-{suffix}", self.namespace, schedulerName=self.scheduler, resourceClaims=[entry]))  # fmt: skip

    def step(self, pods, now):
        """Count the small pods that were placed while the big pod waits, delete small pods whose time is over, and create new ones."""
        own_pods = [pod for pod in pods if pod["spec"]["schedulerName"] == self.scheduler]
        for pod_ in own_pods:
            name = pod_["metadata"]["name"]
            if not pod_["spec"].get("nodeName"):
                continue
            if name == f"{self.name}-big":
                self.big_is_placed = True
            elif name not in self.end_times:
                self.end_times[name] = now + self.draw.uniform(1, 5)
                self.placed_before_big += not self.big_is_placed
            elif self.end_times[name] < now:
                delete(self.cluster, self.namespace, name)
                self.end_times[name] = inf
        for _ in range(20 - sum(not pod_["spec"].get("nodeName") for pod_ in own_pods)):
            self.count += 1
            self.add(self.count, 1)


@pytest.mark.timeout(180)
def test_small_pods_do_not_starve_a_big_pod(control_plane, ours):
    """The test runs our scheduler and kube-scheduler.

    With kube-scheduler, the big pod waits until all eight devices happen to be free.
    """
    lanes = [Lane(control_plane, ours, scheduler) for scheduler in (SCHEDULER, "default-scheduler")]
    path = f"/api/v1/namespaces/{ours}/pods"
    try:
        begun = now = time.monotonic()
        big_created, waits = 0.0, {}
        while not waits and now < (big_created or begun) + 70:
            now = time.monotonic()
            pods = control_plane.get(path)["items"]
            for lane in lanes:
                lane.step(pods, now)
                if lane.big_is_placed and lane.scheduler != "default-scheduler":
                    waits.setdefault(lane.scheduler, round(now - big_created, 1))
            if not big_created and all(len(lane.end_times) > 10 for lane in lanes):
                big_created = now
                for lane in lanes:
                    lane.placed_before_big = 0
                    lane.add("big", 8)
            time.sleep(0.1)
        print(waits, {lane.scheduler: (lane.big_is_placed, lane.placed_before_big) for lane in lanes})
        assert waits
    finally:
        control_plane.delete(path, gracePeriodSeconds=0)
        control_plane.remove(*(obj for lane in lanes for obj in lane.objects))


def test_pods_wait_with_an_event_while_the_allocator_is_down(control_plane, bridge, ours):
    control_plane.create(template("one", ours, request("gpu", CLASS)))
    bridge.processes["allocator-0"].stop(hard=True)
    try:
        control_plane.create(claim_pod("p", ours, using_template("one")), claim_pod("plain", ours))
        words = "waits for the drawbridge allocator"
        control_plane.until(
            "an event says that the pod waits for the allocator",
            lambda: any(words in event for event in control_plane.events(ours, "p")),
        )
        assert held_devices(control_plane, ours) == []
    finally:
        bridge.start()
    control_plane.wait_scheduled(ours, "p")
    control_plane.wait_scheduled(ours, "plain")


def test_the_component_makes_a_deployment_with_both_containers(control_plane, tmp_path):
    """The documented overlay, built by kustomize."""
    up_to_root = "../" * (len(tmp_path.resolve().parts) - 1)
    bridge = f"{up_to_root}{COMPONENT.relative_to(COMPONENT.anchor)}"
    overlay = {"resources": [f"{bridge}/../base"], "components": [bridge]}
    (tmp_path / "kustomization.yaml").write_text(manifests.dump([overlay]))
    built = [document.object for document in manifests.parse(control_plane.kubectl("kustomize", str(tmp_path)).stdout)]
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in built}
    spec = objects["Deployment", "drawbridge-allocator"]["spec"]["template"]["spec"]
    assert [container["image"] for container in spec["containers"]] == [
        "drawbridge.invalid/name-an-image",
        "drawbridge-scheduler.invalid/name-an-image",
    ]
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert (
            "run"
            in {mount["name"] for mount in container["volumeMounts"]}
            <= {volume["name"] for volume in spec["volumes"]}
        )
