"""What keeps a waiting pod from running: who has to act, the cheapest set of obstacles, and remedies that cost nobody more important."""

import random
from itertools import product

import pytest

from analysis.doctor import DoctorInput, diagnose
from analysis.explain import pod_story
from analysis.loading import reading_of
from analysis.way_out import LONGEST, Degree
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, node, pod
from tests.cli.explain.scenes import held_claim, in_phase
from tests.limits import draws
from tests.loops import every
from tests.objects import obj, owner
from webhook.state import Features

CPUS = {"cpu": "8", "pods": "10"}
HEALTH, DEDICATED = "example.com/unhealthy", "example.com/team"


def cpus(amount):
    return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]


def waiting(**spec):
    return in_phase(pod("p", "c", **{"priority": 0, "containers": cpus("1")} | spec), "Pending")


def nodes(*names, devices=1, slices=1, **spec):
    """Return nodes with these fields, each with devices in one of the slices of its pool."""
    objects = [device_class()]
    for name in names:
        slice_ = gpus(name, devices)
        slice_["spec"]["pool"]["resourceSliceCount"] = slices
        objects += [node(name, allocatable=CPUS) | {"spec": spec}, slice_]
    return objects


def tainted(key):
    taint = {"key": key, "effect": "NoSchedule"}
    return obj("DeviceTaintRule", "rule", "resource.k8s.io/v1", deviceSelector={"driver": DRIVER}, taint=taint)  # fmt: skip


def holder(name, on, *, priority=0, namespace="default", lives=True):
    """Return a claim with a device, and its pod."""
    held = held_claim(f"c-{name}", name, on=on)
    held["metadata"] |= {"namespace": namespace, "uid": f"claim-{name}"}
    user = in_phase(pod(name, f"c-{name}", nodeName=on.partition("/")[0], priority=priority), "Running")
    user["metadata"] |= {"namespace": namespace}
    return [held, user] if lives else [held]


def way_out_of(*objects):
    prospect = pod_story("default/p", reading_of(objects, Features(minor=37))).prospect
    return prospect and prospect.way_out


TOLERATES = [{"key": "example.com/taem", "operator": "Exists", "effect": "NoSchedule"}]
CASES = {
    "200 CPUs": ([*nodes("n0"), claim("c"), waiting(containers=cpus("200"))], Degree.NEVER, "request at most 8 cpu"),
    "200 CPUs beside a pod that uses 3": ([*nodes("n0"), in_phase(pod("busy", nodeName="n0", containers=cpus("3")), "Running"), claim("c"), waiting(containers=cpus("200"))], Degree.NEVER, "request at most 5 cpu"),
    "a toleration of another taint": ([*nodes("n0", taints=[{"key": DEDICATED, "effect": "NoSchedule"}]), claim("c"), waiting()], Degree.CHANGE, f"tolerate {DEDICATED}:NoSchedule, or free nodes without this taint"),
    "a misspelt toleration": ([*nodes("n0", taints=[{"key": DEDICATED, "effect": "NoSchedule"}]), claim("c"), waiting(tolerations=TOLERATES)], Degree.CHANGE, f"tolerate {DEDICATED} instead of example.com/taem"),
    "a pool of nodes for others": ([*nodes("n0", taints=[{"key": "example.com/default-pool", "effect": "NoSchedule"}]), claim("c"), waiting()], Degree.CHANGE, "tolerate example.com/default-pool"),
    "a maintenance of the node": ([*nodes("n0", taints=[{"key": "maintenance", "effect": "NoSchedule"}]), claim("c"), waiting()], Degree.CHANGE, "end the maintenance of node n0, and remove its taint maintenance:NoSchedule"),
    "a cordoned node": ([*nodes("n0", unschedulable=True), claim("c"), waiting()], Degree.CHANGE, "uncordon node n0"),
    "an init container of 6 devices": ([*nodes("n0", devices=4), device_class(extendedResourceName="example.com/gpu"), waiting(resourceClaims=[], initContainers=[{"name": "i", "image": "i", "resources": {"limits": {"example.com/gpu": "6"}}}])], Degree.NEVER, "request at most 4 devices"),
    "a class that selects nothing": ([*nodes("n0"), device_class("gpu", selectors=[{"cel": {"expression": "false"}}]), claim("c"), waiting()], Degree.NEVER, "check that the driver runs and publishes all slices"),
    "an unhealthy device": ([*nodes("n0"), tainted(HEALTH), claim("c"), waiting()], Degree.CHANGE, "repair the devices of node n0, then delete DeviceTaintRule rule"),
    "a dedicated device": ([*nodes("n0"), tainted(DEDICATED), claim("c"), waiting()], Degree.CHANGE, f"let request r of the claim tolerate {DEDICATED}:NoSchedule"),
    "an incomplete pool": ([*nodes("n0", slices=2), claim("c"), waiting()], Degree.CHANGE, "restart the driver on node n0"),
    "more than an incomplete pool may have": ([*nodes("n0", slices=2), claim("c", 3), waiting()], Degree.CHANGE, "restart the driver on node n0"),
    "more than complete pools have": ([*nodes("n0", slices=2), *nodes("n1"), claim("c", 3), waiting()], Degree.NEVER, "request at most 1 device"),
    "a live holder": ([*nodes("n0"), *holder("live", "n0/gpu-0"), claim("c"), waiting()], Degree.WAITS, ""),
    "a more important holder": ([*nodes("n0"), *holder("prod", "n0/gpu-0", priority=1), claim("c"), waiting()], Degree.WAITS, ""),
    "a dead holder": ([*nodes("n0"), *holder("dead", "n0/gpu-0", lives=False), in_phase(pod("x", nodeName="n0"), "Running"), claim("c"), waiting()], Degree.CHANGE, "delete claim default/c-dead"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_degree_and_the_first_remedy(case):
    objects, degree, remedy = CASES[case]
    way_out = way_out_of(*objects)
    assert (way_out.degree, way_out.remedy[: len(remedy)] if remedy else way_out.remedy) == (degree, remedy)


def test_all_nodes_of_equal_nodes_are_examined():
    """The devices of n0 and n2 are held by more important pods, that of n1 by a pod of another namespace with an equal priority."""
    objects = nodes("n0", "n1", "n2")
    for at, priority in enumerate((1, 0, 1)):
        objects += holder(f"h{at}", f"n{at}/gpu-0", priority=priority, namespace="other")
    way_out = way_out_of(*objects, claim("c"), waiting())
    assert [(obstacle.subject, obstacle.cost) for obstacle in way_out.obstacles] == [("Pod/other/h1", 5)]
    assert "of node n1" in way_out.text


def test_a_broken_node_does_not_change_the_degree_of_a_pod_that_only_waits():
    objects = [*nodes("n0"), *nodes("n1", unschedulable=True), *holder("live", "n0/gpu-0"), claim("c"), waiting()]
    assert (way_out_of(*objects).degree, way_out_of(*objects).remedy) == (Degree.WAITS, "uncordon node n1")


def test_the_sum_of_the_costs_decides_between_nodes():
    """n0 is cordoned, and a pod of the same namespace holds its device: 3 + 4. A pod of another namespace holds that of n1: 5."""
    held = [*holder("own", "n0/gpu-0"), *holder("equal", "n1/gpu-0", namespace="other")]
    assert way_out_of(*nodes("n0", unschedulable=True), *nodes("n1"), *held, claim("c"), waiting()).node == "n1"


def test_two_half_placed_jobs_that_hold_what_the_other_needs_are_one_finding():
    """Each Job has a pod with a device and a pod without one. A third Job has no device."""
    objects, tried = nodes("n0", "n1"), [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    for at, job in enumerate(("a", "b")):
        held, user = holder(f"{job}-0", f"n{at}/gpu-0")
        late = in_phase(pod(f"{job}-1", f"c-{job}-1", priority=0, containers=cpus("1")), "Pending", conditions=tried)
        for member in (user, late):
            member["metadata"] |= {"ownerReferences": [owner("Job", job, "batch/v1")], "creationTimestamp": "2026-11-20T08:00:00Z"}  # fmt: skip
        objects += [held, user, claim(f"c-{job}-1"), late]
    alone = in_phase(pod("c-0", "c-c-0", priority=0, containers=cpus("1")), "Pending", conditions=tried)
    alone["metadata"] |= {"ownerReferences": [owner("Job", "c", "batch/v1")], "creationTimestamp": "2026-11-20T08:00:00Z"}  # fmt: skip
    reading = reading_of([*objects, claim("c-c-0"), alone], Features(minor=37))
    found = [finding for finding in diagnose(DoctorInput(reading=reading)) if finding.code == "O119"]
    assert [(finding.object, finding.message) for finding in found] == [
        ("Pod/default/a-1", "Job/default/a and Job/default/b each hold devices that the other needs: 1 of 2 and 1 of 2 pods are placed (also default/b-1)")
    ]  # fmt: skip
    assert found[0].remedy == "suspend or delete one of them until the other has ended"
    assert "pod default/a-0 holds" in pod_story("default/c-0", reading).state.reasons[0].text


# ---- properties of random fleets


def draw(rng):
    """Draw a fleet as a list of parts; each part is a kind, a name, and its objects."""
    parts = []
    for at in range(rng.randint(1, 4)):
        name, devices = f"n{at}", rng.randint(1, 2)
        broken = rng.choice(("", "", "", "cordon", "taint", "pool"))
        fields = {"cordon": {"unschedulable": True}, "taint": {"taints": [{"key": HEALTH, "effect": "NoExecute"}]}}
        parts.append(["node", name, nodes(name, devices=devices, slices=1 + (broken == "pool"), **fields.get(broken, {}))[1:]])  # fmt: skip
        for device in range(devices):
            if rng.random() < 0.8:
                kind = rng.choice(("dead", "own", "equal", "higher"))
                priority = {"higher": 5, "equal": rng.choice((0, -5))}.get(kind, 0)
                namespace = "default" if kind == "own" else "other"
                held = holder(f"{kind}-{name}-{device}", f"{name}/gpu-{device}", priority=priority, namespace=namespace, lives=kind != "dead")  # fmt: skip
                parts.append([kind, f"{namespace}/{kind}-{name}-{device}", held])
    if rng.random() < 0.3:
        parts.append(["rule", "rule", [tainted(HEALTH)]])
    return parts


def objects_of(parts, pending):
    living = in_phase(pod("living", nodeName="elsewhere"), "Running")
    other = living | {"metadata": {**living["metadata"], "namespace": "other"}}
    return [device_class(), living, other, *[part for _, _, objects in parts for part in objects], *pending]


def repaired(parts):
    """Return the fleet with all nodes, devices and pools in order."""
    return [
        [kind, name, [fixed(stored) for stored in objects]] if kind == "node" else [kind, name, objects]
        for kind, name, objects in parts
        if kind != "rule"
    ]


def fixed(stored):
    if stored["kind"] == "Node":
        return stored | {"spec": {}}
    return stored | {"spec": stored["spec"] | {"pool": stored["spec"]["pool"] | {"resourceSliceCount": 1}}}


LEVELS = {0: (), 4: ("own",), 5: ("own", "equal"), 9: ("own", "equal", "higher")}


def least_cost(parts, pending):
    """Return the least cost of all sets of obstacles without which the pod has room; None if there is none."""
    costs = []
    for unused, broken, held in product((0, 1), (0, 3), LEVELS):
        gone = {*LEVELS[held], *["dead"] * unused}
        left = [part for part in (repaired(parts) if broken else parts) if part[0] not in gone]
        if way_out_of(*objects_of(left, pending)) is None:
            costs.append(unused + broken + held)
    return min(costs, default=None)


def apply(obstacle, parts):
    """Return the fleet after the remedy of an obstacle, or after its holder has ended."""
    kind, name = obstacle.subject.partition("/")[::2]
    if kind in ("Pod", "ResourceClaim"):
        return [part for part in parts if part[1] != name.replace("/c-", "/")]
    return [
        [part_kind, of, [fixed(stored) for stored in objects]] if part_kind == "node" and of in obstacle.text else [part_kind, of, objects]
        for part_kind, of, objects in parts
        if kind != "DeviceTaintRule" or part_kind != "rule"
    ]  # fmt: skip


@every("seed", range(draws(200)))
def test_the_cheapest_way_out_of_a_random_fleet(seed):
    rng = random.Random(seed)
    parts = draw(rng)
    pending = [claim("c", rng.randint(1, 2)), waiting()]
    way_out = way_out_of(*objects_of(parts, pending))
    cost = least_cost(parts, pending)
    if way_out is None or way_out.degree is Degree.NEVER:
        assert cost == (None if way_out else 0)
        return
    if cost is None:
        assert {obstacle.kind for obstacle in way_out.obstacles} == {"pool"}, "a missing slice may have more devices"
        return
    kinds = {obstacle.cost for obstacle in way_out.obstacles}
    assert sum(kinds & {1, 3}) + max(kinds - {1, 3}, default=0) == cost
    assert len(way_out.text) <= LONGEST
    assert way_out.degree is Degree.WAITS or not kinds <= {4, 5, 9}
    for obstacle in way_out.obstacles:
        assert "higher-" not in obstacle.remedy, "a pod of higher priority is no remedy"
        assert "tolerate" not in obstacle.remedy, "a taint of health is not tolerated"
    again = way_out_of(*objects_of(apply(way_out.obstacles[0], parts), pending))
    assert again is None or way_out.obstacles[0] not in again.obstacles
    for obstacle in way_out.obstacles:
        parts = apply(obstacle, parts)
    assert way_out_of(*objects_of(parts, pending)) is None, "after all remedies, the pod has room"
