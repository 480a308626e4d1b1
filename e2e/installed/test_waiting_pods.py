"""The first line of `drawbridge doctor` and `drawbridge explain` for a pod that waits for one or two reasons.

The line never names a claim that is not involved.
"""

import json
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from cli.main import main
from e2e.actors import fleet
from e2e.actors.workloads import claim, container, pod, request, template, using, using_template
from e2e.installed.breakages import SECONDS, broken, findings_of_doctor, name_of, reference, set_at, until_healthy
from webhook.claims import taint_rule

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.time_limit(480, "a dozen processes start, and some twenty pods wait")]  # fmt: skip

DRIVER = "waits.example.com"
CLASS = fleet.device_class("e2e-waits", f"device.driver == '{DRIVER}'")
HOLLOW = fleet.device_class("e2e-hollow", "false")
SPACE = "waiting"
DEVICES = "resource.k8s.io/v1"
FENCE = taint_rule(DRIVER)
CLOSED = FENCE | {
    "metadata": {"name": "e2e-closed"},
    "spec": {
        "deviceSelector": {"driver": DRIVER},
        "taint": {"key": "example.com/maintenance", "effect": "NoSchedule"},
    },
}
QUOTA = reference("v1", "ResourceQuota", "none", SPACE) | {
    "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "0"}},
}
LABEL = {"nodeSelector": {"disk": "ssd"}}
CPUS = {"containers": [container(resources={"requests": {"cpu": "500"}})]}


class Reason(NamedTuple):
    """Why a pod waits: other objects, fields of the pod, and the line that has to come first."""

    said: str
    made: tuple[dict[str, Any], ...] = ()
    spec: dict[str, Any] = {}
    found: tuple[str, str] | None = None  # doctor's first finding: code and object
    class_name: str = "e2e-waits"
    held: bool = False  # whether another claim holds the device
    alone: bool = False  # whether freeing that claim is enough for the pod
    cordoned: bool = False


MINE = ("O110", f"Pod/{SPACE}/p")
EMPTY = ("O108", "DeviceClass/e2e-hollow")
REASONS = {
    "held": Reason("devices are in use", held=True, alone=True),
    "held, and a label": Reason("didn't match Pod's node affinity/selector", held=True, spec=LABEL),
    "held, and processors": Reason("Insufficient cpu", held=True, spec=CPUS),
    "held, and a cordon": Reason("unschedulable", held=True, cordoned=True),
    "held, and a fence": Reason("have a taint", (FENCE,), held=True, found=MINE),
    "held, and a taint": Reason("have a taint", (CLOSED,), held=True, found=("O111", "DeviceTaintRule/e2e-closed")),
    "a fence": Reason("have a taint", (FENCE,), found=MINE),
    "a fence, and a label": Reason("didn't match Pod's node affinity/selector", (FENCE,), spec=LABEL, found=MINE),
    "a cordon": Reason("unschedulable", cordoned=True),
    "a class without devices": Reason("no node has devices of this class", class_name="e2e-hollow", found=EMPTY),
    "a class without devices, and a label": Reason("didn't match Pod's node affinity/selector", class_name="e2e-hollow", spec=LABEL, found=EMPTY),
    "no class": Reason("waiting for DeviceClass e2e-none", class_name="e2e-none", found=("O107", "DeviceClass/e2e-none")),
    "no claim": Reason("ResourceClaim lost does not exist", spec={"resourceClaims": [{"name": "p", "resourceClaimName": "lost"}]}),
    "a quota of claims, and a fence": Reason(
        "no claim p can be created: ResourceQuota none has count/resourceclaims",
        (template("p", SPACE, request("device", "e2e-waits")), FENCE, QUOTA),
        spec={"resourceClaims": [using_template("p")]},
        found=("O106", f"Pod/{SPACE}/p"),
    ),
    "another scheduler": Reason("no scheduler is named drawbrigde", held=True, spec={"schedulerName": "drawbrigde"}, found=("O109", f"Pod/{SPACE}/p")),
    "a gate": Reason("scheduling gates hold it: example.com/later", held=True, spec={"schedulingGates": [{"name": "example.com/later"}]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(installation):
    """The cluster with another device, which no driver prepares, and a namespace without translation."""
    cluster = installation.cluster
    until_healthy(cluster)
    devices = fleet.slices(DRIVER, installation.node.name, [fleet.device("only", {})], by_name=True)
    cluster.namespace(SPACE)
    cluster.create(*devices, CLASS, HOLLOW)
    yield cluster
    cluster.remove(*devices, CLASS, HOLLOW, reference("v1", "Namespace", SPACE))
    until_healthy(cluster)


def explained(cluster, name, namespace):
    """Return what `drawbridge explain pod` prints; fail if it takes too much CPU time."""
    begun = time.process_time()
    words = ["explain", "pod", name, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    done = CliRunner().invoke(main, words)
    assert time.process_time() - begun < SECONDS
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["pod"]


def hold(cluster, node):
    """Allocate the device to the claim of another scheduler's pod, which that scheduler has found unschedulable."""
    result = {"request": "device", "driver": DRIVER, "pool": f"{node}-fleet", "device": "only"}
    held = claim("holder", SPACE, request("device", "e2e-waits"))
    holder = pod("holder", SPACE, schedulerName="elsewhere", resourceClaims=[using("holder")])
    made = cluster.create(held, holder)
    consumer = {"resource": "pods", "name": "holder", "uid": made[1]["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    cluster.patch(f"{cluster.path_of(held)}/status", {"status": status})
    looked = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.patch(f"{cluster.path_of(holder)}/status", {"status": {"conditions": [looked]}})
    return holder, held


def is_refused(cluster):
    """Return whether the scheduler refuses a trial pod: until it knows the taint, it allocates the device."""
    asking, trial = claim("trial", SPACE, request("device", "e2e-waits")), pod("trial", SPACE, resourceClaims=[using("trial")])  # fmt: skip
    cluster.create(asking, trial)

    def outcome():
        there = cluster.read(trial)
        conditions = [
            condition["type"]
            for condition in there.get("status", {}).get("conditions", [])
            if condition["status"] == "False"
        ]
        return "placed" if there["spec"].get("nodeName") else "refused" if "PodScheduled" in conditions else None

    try:
        return cluster.until("a scheduler has looked at the trial", outcome) == "refused"
    finally:
        gone(cluster, [asking, trial])


def in_order(cluster, reason, made):
    """Create the objects that keep the pod waiting, then the pod."""
    own = claim("p", SPACE, request("device", reason.class_name))
    claims = reason.spec.get("resourceClaims", [using("p")])
    for item in (*([own] if claims == [using("p")] else []), *reason.made):
        made.append(item)
        cluster.create(item)
        if item is QUOTA:
            cluster.until("the quota counts", lambda: cluster.read(QUOTA).get("status", {}).get("hard"))
    if FENCE in reason.made and not reason.held and QUOTA not in reason.made:
        cluster.until("the scheduler has heard of the taint", lambda: is_refused(cluster))
    spec = {"containers": [container()], "resourceClaims": claims} | reason.spec
    main_container = spec["containers"][0]
    resources = main_container.get("resources", {}) | {"claims": [{"name": "p"}]}
    item = pod("p", SPACE, **spec | {"containers": [main_container | {"resources": resources}]})
    made.append(item)
    cluster.create(item)


@pytest.mark.parametrize("name", REASONS)
def test_explain_and_doctor_name_the_actual_reason_first(cluster, node, name):
    reason = REASONS[name]
    made: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(lambda: gone(cluster, made))
        if reason.cordoned:
            stack.enter_context(
                broken(cluster, reference("v1", "Node", node.name), set_at("spec", "unschedulable", value=True))
            )
        if reason.held:
            made += hold(cluster, node.name)
        in_order(cluster, reason, made)
        answer: dict[str, Any] = {}

        def says():
            answer.update(explained(cluster, "p", SPACE))
            return reason.said in answer["nextStep"]["message"] or None

        cluster.until("explain names the reason", says, detail=lambda: answer)
        prospect = answer["prospect"] or {"blockers": [], "nearestFit": ""}
        enough = [blocker["claim"] for blocker in prospect["blockers"] if blocker["freeingSuffices"]]
        assert enough == [f"{SPACE}/holder"] * reason.alone, answer
        assert ("holder" in prospect["nearestFit"]) == reason.alone, answer
        firsts: list[str | None] = []
        try:
            cluster.until("doctor's first finding", lambda: firsts.append(first(cluster)) or firsts[-1] == reason.found)
        except AssertionError:
            assert firsts[-1] == reason.found


def first(cluster):
    """Return the code and object of doctor's first finding; None without findings."""
    return next(((ailment.code, ailment.object) for ailment in findings_of_doctor(cluster)), None)


def gone(cluster, made):
    cluster.remove(*reversed(made))
    for item in made:
        cluster.until(f"{name_of(item)} is gone", lambda item=item: cluster.read(item) is None)


def slices_of_a_node_that_is_gone(cluster, node):
    made = fleet.slices(DRIVER, "gone-0", [fleet.device("only", {})], by_name=True)
    cluster.create(*made)
    return "O204", made[0], lambda: cluster.remove(*made)


def a_daemon_set_for_no_node(cluster, node):
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": "driver"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"nodeSelector": {"drawbridge.dev/driver": "refrence"}, "containers": [container()]},
        },
    }
    made = reference("apps/v1", "DaemonSet", "drawbridge-misplaced", SPACE) | {"spec": spec}
    made["metadata"] = made["metadata"] | {"labels": labels}
    cluster.create(made)
    return "O009", made, lambda: cluster.remove(made)


def what_a_device_plugin_left(cluster, node):
    """The node still advertises the extended resource of devices that its driver publishes."""
    path = f"/api/v1/nodes/{node.name}/status"
    amounts = {"capacity": {"nvidia.com/gpu": "2"}, "allocatable": {"nvidia.com/gpu": "2"}}
    cluster.patch(path, {"status": amounts})
    none = {key: {"nvidia.com/gpu": None} for key in amounts}
    return "O202", reference("v1", "Node", node.name), lambda: cluster.patch(path, {"status": none})


@pytest.mark.parametrize("break_it", [slices_of_a_node_that_is_gone, a_daemon_set_for_no_node, what_a_device_plugin_left])  # fmt: skip
def test_doctor_names_first_objects_left_over_or_misplaced_on_nodes(cluster, node, break_it):
    what, about, restore = break_it(cluster, node)
    try:
        cluster.until(f"{what} is named first", lambda: first(cluster) == (what, name_of(about)))
    finally:
        restore()
        cluster.until("it is well", lambda: not findings_of_doctor(cluster))
