"""The first line of `drawbridge doctor` and `drawbridge explain` for a pod that waits for one or two reasons, and the remedies.

The line never names a claim that is not involved. Once the first remedy is done, and the next one if there is another reason, the pod runs.
"""

import json
import time
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from cli.main import main
from e2e.actors import fleet
from e2e.actors.workloads import claim, container, pod, request, template, using, using_template
from e2e.installed.breakages import SECONDS, broken, findings_of_doctor, name_of, reference, set_at, until_healthy
from e2e.installed.remedies import Operator, run_command
from webhook.claims import taint_rule

pytestmark = [pytest.mark.real, pytest.mark.node, pytest.mark.timeout(480)]  # fmt: skip

DRIVER = "waits.example.com"
CLASS = fleet.device_class("e2e-waits", f"device.driver == '{DRIVER}'")
HOLLOW = fleet.device_class("e2e-hollow", "false")
NAMESPACE = "waiting"
DEVICES = "resource.k8s.io/v1"
FENCE = taint_rule(DRIVER)
CLOSED = FENCE | {
    "metadata": {"name": "e2e-closed"},
    "spec": {
        "deviceSelector": {"driver": DRIVER},
        "taint": {"key": "example.com/maintenance", "effect": "NoSchedule"},
    },
}
QUOTA = reference("v1", "ResourceQuota", "none", NAMESPACE) | {
    "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "0"}},
}
LABEL = {"nodeSelector": {"disk": "ssd"}}
HOLD = "sleep 600"
CPUS = {"containers": [container(command=HOLD, resources={"requests": {"cpu": "500"}})]}


class Reason(NamedTuple):
    """Why a pod waits: other objects, fields of the pod, and the line that has to come first."""

    words: str
    objects: tuple[dict[str, Any], ...] = ()
    spec: dict[str, Any] = {}
    finding: tuple[str, str] | None = None  # doctor's first finding: code and object
    class_name: str = "e2e-waits"
    held: bool = False  # whether another claim holds the device
    freeing_suffices: bool = False  # whether freeing that claim is enough for the pod
    cordoned: bool = False


POD_IS_FENCED = ("O110", f"Pod/{NAMESPACE}/p")
CLASS_IS_EMPTY = ("O108", "DeviceClass/e2e-hollow")
REASONS = {
    "held": Reason("holder holds only of node", held=True, freeing_suffices=True),
    "held, and a label": Reason("no node has disk=ssd", held=True, spec=LABEL),
    "held, and processors": Reason("it requests 500 cpu", held=True, spec=CPUS),
    "held, and a cordon": Reason("is cordoned", held=True, cordoned=True),
    "held, and a fence": Reason("does not tolerate the taint", (FENCE,), held=True, finding=POD_IS_FENCED),
    "held, and a taint": Reason("have taint example.com/maintenance", (CLOSED,), held=True, finding=("O111", "DeviceTaintRule/e2e-closed")),
    "a fence": Reason("does not tolerate the taint", (FENCE,), finding=POD_IS_FENCED),
    "a fence, and a label": Reason("no node has disk=ssd", (FENCE,), spec=LABEL),
    "a cordon": Reason("is cordoned", cordoned=True),
    "a class without devices": Reason("no node has devices of this class", class_name="e2e-hollow", finding=CLASS_IS_EMPTY),
    "a class without devices, and a label": Reason("no node has disk=ssd", class_name="e2e-hollow", spec=LABEL, finding=CLASS_IS_EMPTY),
    "no class": Reason("DeviceClass e2e-none does not exist", class_name="e2e-none", finding=("O107", "DeviceClass/e2e-none")),
    "no claim": Reason("ResourceClaim lost does not exist", spec={"resourceClaims": [{"name": "p", "resourceClaimName": "lost"}]}),
    "a quota of claims, and a fence": Reason(
        "cannot be created",
        (template("p", NAMESPACE, request("device", "e2e-waits")), FENCE, QUOTA),
        spec={"resourceClaims": [using_template("p")]},
        finding=("O106", f"Pod/{NAMESPACE}/p"),
    ),
    "another scheduler": Reason("no scheduler called drawbrigde has tried to place it", held=True, spec={"schedulerName": "drawbrigde"}, finding=("O109", f"Pod/{NAMESPACE}/p")),
    "a gate": Reason("scheduling gates hold it: example.com/later", held=True, spec={"schedulingGates": [{"name": "example.com/later"}]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(installation):
    """The cluster with another device and its driver, and a namespace without translation."""
    cluster = installation.cluster
    until_healthy(cluster)
    installation.node.driver(DRIVER)
    devices = fleet.slices(DRIVER, installation.node.name, [fleet.device("only", {})])
    cluster.namespace(NAMESPACE)
    cluster.create(*devices, CLASS, HOLLOW)
    yield cluster
    cluster.remove(*devices, CLASS, HOLLOW, reference("v1", "Namespace", NAMESPACE))
    installation.node.end_driver(DRIVER)
    until_healthy(cluster)


def explained(cluster, name, namespace):
    """Return what `drawbridge explain pod` prints; fail if it takes too much CPU time."""
    begun = time.process_time()
    words = ["explain", "pod", name, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    result = CliRunner().invoke(main, words)
    assert time.process_time() - begun < SECONDS
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["pod"]


def hold_device(cluster, node):
    """Allocate the device to the claim of another scheduler's pod, which that scheduler has found unschedulable."""
    result = {"request": "device", "driver": DRIVER, "pool": f"{node}-fleet", "device": "only"}
    held_claim = claim("holder", NAMESPACE, request("device", "e2e-waits"))
    holder = pod("holder", NAMESPACE, schedulerName="elsewhere", resourceClaims=[using("holder")])
    created = cluster.create(held_claim, holder)
    consumer = {"resource": "pods", "name": "holder", "uid": created[1]["metadata"]["uid"]}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    cluster.patch(f"{cluster.path_of(held_claim)}/status", {"status": status})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.patch(f"{cluster.path_of(holder)}/status", {"status": {"conditions": [condition]}})
    return holder, held_claim


def is_refused(cluster):
    """Return whether the scheduler refuses a trial pod: until it knows the taint, it allocates the device."""
    trial_claim, trial = claim("trial", NAMESPACE, request("device", "e2e-waits")), pod("trial", NAMESPACE, resourceClaims=[using("trial")])  # fmt: skip
    cluster.create(trial_claim, trial)

    def outcome():
        current = cluster.read(trial)
        conditions = [
            condition["type"]
            for condition in current.get("status", {}).get("conditions", [])
            if condition["status"] == "False"
        ]
        return "placed" if current["spec"].get("nodeName") else "refused" if "PodScheduled" in conditions else None

    try:
        return cluster.until("the scheduler has placed or refused the trial pod", outcome) == "refused"
    finally:
        delete_and_wait(cluster, [trial_claim, trial])


def create_waiting_pod(cluster, reason, created):
    """Create the objects that keep the pod waiting, then the pod."""
    own_claim = claim("p", NAMESPACE, request("device", reason.class_name))
    claims = reason.spec.get("resourceClaims", [using("p")])
    for item in (*([own_claim] if claims == [using("p")] else []), *reason.objects):
        created.append(item)
        cluster.create(item)
        if item is QUOTA:
            cluster.until("the quota has a status", lambda: cluster.read(QUOTA).get("status", {}).get("hard"))
    if FENCE in reason.objects and not reason.held and QUOTA not in reason.objects:
        cluster.until("the scheduler knows the taint", lambda: is_refused(cluster))
    spec = {"containers": [container(command=HOLD)], "resourceClaims": claims} | reason.spec
    main_container = spec["containers"][0]
    resources = main_container.get("resources", {}) | {"claims": [{"name": "p"}]}
    item = pod("p", NAMESPACE, **spec | {"containers": [main_container | {"resources": resources}]})
    created.append(item)
    cluster.create(item)


@pytest.mark.parametrize("name", REASONS)
def test_explain_and_doctor_name_the_actual_reason_first_and_its_remedy_works(cluster, node, name):
    reason = REASONS[name]
    created: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(lambda: delete_and_wait(cluster, created))
        if reason.cordoned:
            stack.enter_context(
                broken(cluster, reference("v1", "Node", node.name), set_at("spec", "unschedulable", value=True))
            )
        if reason.held:
            created += hold_device(cluster, node.name)
        create_waiting_pod(cluster, reason, created)
        answer: dict[str, Any] = {}

        def names_reason():
            answer.update(explained(cluster, "p", NAMESPACE))
            return reason.words in answer["state"]["reasons"][0]["text"] or None

        cluster.until("explain names the reason", names_reason, detail=lambda: answer)
        way_out = (answer["prospect"] or {}).get("wayOut") or {"text": "", "obstacles": []}
        only_held = [obstacle["subject"] for obstacle in way_out["obstacles"]] == [f"Pod/{NAMESPACE}/holder"]
        assert (only_held and way_out["text"] == answer["state"]["reasons"][0]["text"]) == reason.freeing_suffices, (
            answer
        )
        findings: list[str | None] = []
        try:
            cluster.until(
                "doctor's first finding",
                lambda: findings.append(key_of(first_finding(cluster))) or findings[-1] == reason.finding,
            )
        except AssertionError:
            assert findings[-1] == reason.finding
        explain = partial(explained, cluster, "p", NAMESPACE)
        operator = Operator(cluster, NAMESPACE, CLASS, explained=explain, made=created, undo=stack)
        operator.mend()
        assert operator.done
        until_healthy(cluster)
        operator.end()


def first_finding(cluster):
    return next(iter(findings_of_doctor(cluster)), None)


def key_of(finding):
    return (finding.code, finding.object) if finding is not None else None


def delete_and_wait(cluster, objects):
    cluster.remove(*reversed(objects))
    for item in objects:
        cluster.until(f"{name_of(item)} is gone", lambda item=item: cluster.read(item) is None)


def slices_of_a_deleted_node(cluster, node):
    slices = fleet.slices(DRIVER, "gone-0", [fleet.device("only", {})], by_name=True)
    cluster.create(*slices)
    return (
        "O204",
        slices[0],
        "kubectl delete resourceslice ",
        lambda: run_command(cluster, first_finding(cluster).remedy),
    )


def a_daemon_set_for_no_node(cluster, node):
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": "driver"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"nodeSelector": {"drawbridge.dev/driver": "refrence"}, "containers": [container()]},
        },
    }
    daemon_set = reference("apps/v1", "DaemonSet", "drawbridge-misplaced", NAMESPACE) | {"spec": spec}
    daemon_set["metadata"] = daemon_set["metadata"] | {"labels": labels}
    cluster.create(daemon_set)
    return "O009", daemon_set, "or delete the DaemonSet", lambda: cluster.remove(daemon_set)


def a_resource_left_by_a_device_plugin(cluster, node):
    """The node still advertises the extended resource of devices that its driver publishes."""
    path = f"/api/v1/nodes/{node.name}/status"
    amounts = {"capacity": {"nvidia.com/gpu": "2"}, "allocatable": {"nvidia.com/gpu": "2"}}
    cluster.patch(path, {"status": amounts})
    none = {key: {"nvidia.com/gpu": None} for key in amounts}
    remedy = "remove the device plugin"
    return "O202", reference("v1", "Node", node.name), remedy, lambda: cluster.patch(path, {"status": none})


@pytest.mark.parametrize("create_fault", [slices_of_a_deleted_node, a_daemon_set_for_no_node, a_resource_left_by_a_device_plugin])  # fmt: skip
def test_doctor_names_first_objects_left_over_or_misplaced_on_nodes_and_the_remedy_works(cluster, node, create_fault):
    code, about, remedy, mend = create_fault(cluster, node)
    try:
        cluster.until(f"doctor's first finding is {code}", lambda: key_of(first_finding(cluster)) == (code, name_of(about)))  # fmt: skip
        assert remedy in first_finding(cluster).remedy
    finally:
        mend()
        cluster.until("doctor has no finding", lambda: not findings_of_doctor(cluster))
