"""Faults of the cluster around drawbridge: each has a finding with a remedy, and states that only resemble a fault have none."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from analysis.doctor import diagnose, survey
from analysis.errors import Failed
from certs import authority
from cli import loop
from cluster.errors import ApiError, BadRequest, Invalid, Unauthorized
from cluster.kubernetes import Kubernetes
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, loaded, node, pod
from tests.cli.broken_clusters import DOES_NOT_START, WAITS
from tests.cli.commands import faults
from tests.cli.commands.faults import (
    FLEET,
    bound_pod,
    claim_of_pod,
    pod_without_sandbox,
    tolerating_claim,
    unowned_claim,
    waiting_pod,
)
from tests.cli.running import manifest, run_json
from tests.objects import (
    RESOURCE_API,
    allocated,
    claim_template,
    container,
    exactly,
    namespace,
    obj,
    owner,
    resource_quota,
    result,
    workload,
)
from webhook.claims import taint_rule as fence

NOW = datetime.now(UTC)
OF_KUBERNETES = KUBELET_LEASE, _ = "kube-node-lease/n0", "kube-system/kube-controller-manager"


def time_ago(seconds):
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def lease(name, age, holder="holder"):
    namespace, _, name = name.partition("/")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": time_ago(age)}
    return obj("Lease", name, "coordination.k8s.io/v1", namespace=namespace, **spec)


def event(reason, object_name, message, age=5, uid=""):
    kind, _, name = object_name.partition("/")
    involved = {"kind": kind, "namespace": "default", "name": name, "uid": uid}
    fields = {"involvedObject": involved, "reason": reason, "message": message, "lastTimestamp": time_ago(age)}
    return obj("Event", f"{reason}-{name}".lower(), namespace="default") | fields


def replica_set(created=0, key="example.com/gpu", desired=1):
    pods = {"containers": [container("c", {key: "1"})]}
    return workload("ReplicaSet", "set", pods, replicas=desired, status={"replicas": created})


def job(**status):
    return workload("Job", "set", replica_set()["spec"]["template"]["spec"], "batch/v1", status=status)


def created_ago(obj, seconds):
    obj["metadata"] |= {"creationTimestamp": time_ago(seconds)}
    return obj


def deleted_ago(obj, seconds, *finalizers):
    obj["metadata"] |= {"deletionTimestamp": time_ago(seconds), "finalizers": list(finalizers)}
    return obj


def ending_namespace(seconds, message="something remains"):
    condition = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": message}
    status = {"phase": "Terminating", "conditions": [condition]}
    return namespace("default", deletionTimestamp=time_ago(seconds)) | {"status": status}


def node_with_readiness(name="n0", status="Unknown"):
    return node(name, conditions=[{"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "no word"}])  # fmt: skip


def taint_rule(key="example.com/repair", **selector):
    spec = {"deviceSelector": {"driver": DRIVER} | selector, "taint": {"key": key, "effect": "NoExecute"}}
    return obj("DeviceTaintRule", "repair", RESOURCE_API, **spec)


def allocated_claim(name):
    return claim(name) | {"status": allocated(result("gpu-0", pool="n0"), pods=["p"])}


def tried_by_a_scheduler(obj):
    return obj | {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}


def unschedulable(message):
    return created_ago(waiting_pod("a", schedulerName="default-scheduler"), 600) | {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}}  # fmt: skip


def pod_on_node(phase="Pending"):
    return pod("p", "a", nodeName="n0") | {"status": {"phase": phase}}


def restarted(times, obj, **state):
    """The pod on a node, with a container that is in this state and has ended with an error this often."""
    container = {"name": "c", "restartCount": times, "lastState": {"terminated": {"reason": "Error"}}, "state": state}
    condition = {"type": "Ready", "status": "False"}
    return obj | {"status": {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}}


def template_quota(used):
    name = "count/resourceclaimtemplates.resource.k8s.io"
    return resource_quota("few", {name: "2"}, status={"hard": {name: "2"}, "used": {name: used}})


TEMPLATE_OF_OURS = f"drawbridge-{'0' * 32}"


def translated_pod():
    obj = created_ago(pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": TEMPLATE_OF_OURS}]), 5)
    obj["metadata"]["annotations"] = {"drawbridge.dev/templates": f'{{"{TEMPLATE_OF_OURS}":"x"}}'}
    return obj


def copied_pod():
    obj = translated_pod()
    del obj["metadata"]["annotations"]
    return created_ago(obj, 120)


def translated_template():
    return claim_template(TEMPLATE_OF_OURS, exactly(), creationTimestamp=time_ago(5))


CRON_JOB_WITH_CLAIM = workload("CronJob", "nightly", {}, "batch/v1") | {"spec": {"jobTemplate": {"spec": {"template": {"spec": {"resourceClaims": [{"name": "d", "resourceClaimName": "a"}]}}}}}}  # fmt: skip


def claim_with_alternatives(name):
    """A claim for a device of the fenced class `gpu` or of the class `free`."""
    obj = claim(name)
    alternatives = [{"name": class_name, "deviceClassName": class_name} for class_name in ("gpu", "free")]
    obj["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": alternatives}]
    return obj


WITH_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
QUOTA_ERROR = 'pods "x" is forbidden: exceeded quota: few'
WEBHOOK_ERROR = 'Internal error occurred: failed calling webhook "guard.example.com": refused'
POLICY_ERROR = "a template for this pod cannot be created: ValidatingAdmissionPolicy 'labels' denied request: no owner"
DRIVER_ERROR = "Failed to prepare: DRA driver is not registered"

CRASH_LOOP = {"waiting": {"reason": "CrashLoopBackOff"}}
DRIVER_PODS = {"volumes": [{"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]}
DRIVER_POD = restarted(5, pod("driver-x", nodeName="n0", ownerReferences=[owner("DaemonSet", "driver", "apps/v1")], **DRIVER_PODS), **CRASH_LOOP)  # fmt: skip
RESTARTING_POD = [allocated_claim("a"), restarted(3, pod("p", "a", nodeName="n0"), **CRASH_LOOP)]
# The objects, the code of the first finding, and a text of its message.
FAULTS = {
    "no controller manager leads": ([lease(KUBELET_LEASE, 0), lease("kube-system/kube-controller-manager", 60), pod("p")], "O017", "no kube-controller-manager has renewed it"),
    "no scheduler leads": ([lease(KUBELET_LEASE, 0), lease("kube-system/kube-scheduler", 60), pod("p")], "O017", "no pod of its profiles is placed"),
    "a node is not ready, for a reason that is not a text": ([node("n9", conditions=[{"type": "Ready", "status": "False", "reason": 5}]), gpus("n9", 1), pod("p")], "O201", "it is not ready, and no pod"),
    "a node with claims is not ready": ([node_with_readiness("n9"), allocated_claim("a"), pod("p", "a", nodeName="n9")], "O201", "claims default/a keep its devices"),
    "no controller manager leads, and another Lease is in the future": ([lease(KUBELET_LEASE, 0), lease("kube-system/kube-controller-manager", 60), lease("other/ahead", -3600), pod("p")], "O017", "no kube-controller-manager has renewed it"),
    "a volume is in another zone": ([claim("a"), unschedulable("2 node(s) had volume node affinity conflict.")], "O118", "volume node affinity conflict"),
    "a volume claim does not exist": ([claim("a"), unschedulable('persistentvolumeclaim "d" not found')], "O118", 'says: persistentvolumeclaim "d" not found'),
    "a container restarts again and again": (RESTARTING_POD, "O117", "it is bound to n0, and container c: CrashLoopBackOff, Error after 3 restarts"),
    "a driver's pod restarts again and again": ([workload("DaemonSet", "driver", DRIVER_PODS, status={"desiredNumberScheduled": 1, "numberReady": 0}), DRIVER_POD, pod("p")], "O203", "pod default/driver-x on n0: container c: CrashLoopBackOff"),
    "a driver's pod restarts, and a pod waits for it": ([DRIVER_POD, allocated_claim("a"), pod_on_node(), event("FailedPrepareDynamicResources", "Pod/p", DRIVER_ERROR)], "O112", f"{DRIVER_ERROR}; pod default/driver-x on n0: container c: CrashLoopBackOff"),
    "a quota refuses pods, and the events are gone": ([replica_set() | {"status": {"replicas": 0, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": QUOTA_ERROR}]}}, pod("p")], "O101", f"its pods cannot be created: {QUOTA_ERROR}"),
    "a quota refuses pods of a Job": ([event("FailedCreate", "Job/set", QUOTA_ERROR), job(), pod("p")], "O101", "exceeded quota: few"),
    "another webhook refuses pods": ([event("FailedCreate", "ReplicaSet/set", f"(combined from similar events): {WEBHOOK_ERROR}"), replica_set(), pod("p")], "O101", f"its pods cannot be created: {WEBHOOK_ERROR}"),
    "a quota has no room for a template": ([template_quota("2"), translated_pod()], "O105", "ResourceQuota default/few has count/resourceclaimtemplates.resource.k8s.io used up"),
    "a copy of a translated pod": ([copied_pod()], "O105", "a copy of a translated pod"),
    "a policy refuses templates": ([event("FailedTemplateCreation", "Pod/p", POLICY_ERROR), translated_pod()], "O105", "denied request: no owner"),
    "a foreign finalizer keeps a pod": ([allocated_claim("a"), deleted_ago(pod("p", "a", nodeName="n0"), 40, "example.com/keeps")], "O215", f"finalizer example.com/keeps keeps it and its devices {DRIVER}/n0/gpu-0"),
    "every device is tainted": ([taint_rule(), claim("a"), pod("p")], "O111", "that is not tolerated by ResourceClaim/default/a"),
    "a deletion of a namespace does not end": ([ending_namespace(40), claim("b"), pod("p")], "O215", "something remains"),
}  # fmt: skip
HEALTHY_STATES = {
    "a container that has restarted twice": [allocated_claim("a"), restarted(2, pod("p", "a", nodeName="n0"), running={})],
    "a renewed lease of the controller manager": [lease(KUBELET_LEASE, 0), lease("kube-system/kube-controller-manager", 10), pod("p")],
    "a lease without a holder": [lease(KUBELET_LEASE, 0), lease("kube-system/kube-controller-manager", 900, ""), pod("p")],
    "a renewed lease, and another in the future": [lease(KUBELET_LEASE, 0), lease("kube-system/kube-controller-manager", 2), lease("other/ahead", -3600), pod("p")],
    "an old dump with a newer lease": [lease(KUBELET_LEASE, 900), lease("kube-system/kube-controller-manager", 901), lease("other/ahead", 0), pod("p")],
    "an old dump": [lease(KUBELET_LEASE, 900), lease("kube-system/kube-controller-manager", 901), pod("p")],
    "a ready node": [node_with_readiness("n9", "True"), gpus("n9", 1), pod("p")],
    "a node without devices is not ready": [node_with_readiness("n9"), pod("p", nodeName="n9")],
    "a ReplicaSet whose pod exists by now": [event("FailedCreate", "ReplicaSet/set", QUOTA_ERROR), replica_set(1), pod("p")],
    "a ReplicaSet that needs no pods": [event("FailedCreate", "ReplicaSet/set", QUOTA_ERROR), replica_set(desired=0), pod("p")],
    "refused pods that request no device": [event("FailedCreate", "ReplicaSet/set", QUOTA_ERROR), replica_set(key="cpu"), pod("p")],
    "a refusal two hours ago": [event("FailedCreate", "ReplicaSet/set", QUOTA_ERROR, 7200), replica_set(), pod("p")],
    "a job that has ended": [event("FailedCreate", "Job/set", QUOTA_ERROR), job(completionTime=time_ago(1)), pod("p")],
    "a job that runs": [event("FailedCreate", "Job/set", QUOTA_ERROR), job(active=1), pod("p")],
    "a refusal by drawbridge": [event("FailedCreate", "ReplicaSet/set", 'admission webhook "pods.mutate.drawbridge.dev" denied the request: x'), replica_set(), pod("p")],
    "a new pod whose claim template does not exist yet": [event("FailedResourceClaimCreation", "Pod/p", "template not found"), created_ago(pod("p", **WITH_TEMPLATE), 5)],
    "a refused claim that exists by now": [event("FailedResourceClaimCreation", "Pod/p", QUOTA_ERROR), pod("p", **WITH_TEMPLATE) | {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}],
    "an event of an earlier pod with this name": [event("FailedResourceClaimCreation", "Pod/p", QUOTA_ERROR, uid="before"), pod("p", **WITH_TEMPLATE)],
    "a refusal for a pod that uses an existing claim": [event("FailedResourceClaimCreation", "Pod/p", QUOTA_ERROR), pod("p", "a"), claim("a")],
    "a quota with room": [template_quota("1"), translated_pod()],
    "a pod without its scheduler for 5 seconds": [created_ago(pod("p", "a", schedulerName="no-such-scheduler"), 5), claim("a")],
    "a pod whose claim does not exist": [created_ago(pod("p", "a", schedulerName="no-such-scheduler"), 40)],
    "a pod whose claim is not created yet": [created_ago(pod("p", schedulerName="no-such-scheduler", **WITH_TEMPLATE), 40)],
    "a pod without devices": [created_ago(pod("p", schedulerName="no-such-scheduler"), 40)],
    "a scheduler that tries other pods": [created_ago(pod("p", "a", schedulerName="slow"), 40), claim("a"), tried_by_a_scheduler(created_ago(pod("q", schedulerName="slow"), 20))],
    "a running pod whose devices were not prepared before": [event("FailedPrepareDynamicResources", "Pod/p", DRIVER_ERROR), allocated_claim("a"), pod_on_node("Running")],
    "one of two devices is tainted": [taint_rule(device="gpu-0"), claim("a"), pod("p")],
    "a deleted pod with a finalizer of Kubernetes": [allocated_claim("a"), deleted_ago(pod("p", "a", nodeName="n0"), 40, "batch.kubernetes.io/job-tracking")],
    "a deleted pod without claims": [deleted_ago(pod("p", nodeName="n0"), 40, "example.com/keeps")],
    "a refused template that exists by now": [event("FailedTemplateCreation", "Pod/p", POLICY_ERROR), translated_pod(), translated_template()],
    "an allocated claim for a tainted device": [taint_rule(), allocated_claim("a"), pod("p", "a", nodeName="n0")],
    "a claim deleted 5 seconds ago": [deleted_ago(claim("a"), 5, "example.com/keeps"), pod("p")],
    "a namespace deleted 5 seconds ago": [ending_namespace(5), claim("b"), pod("p")],
    "a deleted namespace without claims": [ending_namespace(40), pod("p")],
    "a young claim without an owner": [unowned_claim("a", minutes=5), pod("p")],
    "a claim that a pod names": [unowned_claim("a"), pod("p", "a")],
    "a claim that a CronJob names": [unowned_claim("a"), pod("p"), CRON_JOB_WITH_CLAIM],
    "a claim with an owner": [unowned_claim("a", ownerReferences=[owner("Pod", "p", uid="pod-p")]), pod("p")],
    "a claim in a dump without pods": [unowned_claim("a")],
    "a pod that waits for its sandbox for 4 minutes": pod_without_sandbox(minutes=4),
    "a pod with a sandbox": pod_without_sandbox(minutes=6, status="True"),
    "a pod whose driver prepares a claim again": pod_without_sandbox(minutes=6, driver=DRIVER)[1:],
    "a pod without devices that was bound just now": [claim_of_pod("a", "p"), bound_pod("p", "a", minutes=0)],
    "a bound pod with devices": [faults.allocated_claim("a", "p"), bound_pod("p", "a")],
    "a pod without devices and without a node": [claim_of_pod("a", "p"), pod("p", "a")],
    "an ended pod without devices": [claim_of_pod("a", "p"), bound_pod("p", "a") | {"status": {"phase": "Failed"}}],
    "a claim that tolerates the fence": [fence(DRIVER), tolerating_claim("a"), waiting_pod("a")],
    "the fence of another driver": [fence("other.example.com"), claim("a"), waiting_pod("a")],
    "no fence": [claim("a"), waiting_pod("a")],
    "a fence, and a pod that no scheduler has tried": [fence(DRIVER), claim("a"), pod("p", "a")],
    "a fence, and a pod with devices": [fence(DRIVER), faults.allocated_claim("a", "p"), waiting_pod("a")],
    "a fence, and a claim with an alternative": [fence(DRIVER), device_class("free", selectors=[{"cel": {"expression": "false"}}]), claim_with_alternatives("a"), waiting_pod("a")],
}  # fmt: skip


def dump_of(folder, objects):
    """Write a dump with a Lease. The newest Lease tells doctor when the dump was made, so the result does not depend on the current time."""
    clock = [] if any(obj["kind"] == "Lease" for obj in objects) else [lease(KUBELET_LEASE, 0)]
    return manifest(folder / "dump.yaml", *FLEET, *clock, *objects)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_around_drawbridge_is_named_with_a_remedy(fault, tmp_path):
    objects, fault_code, message = FAULTS[fault]
    exit_code, answer = run_json("doctor", "-f", dump_of(tmp_path, objects))
    first = answer["findings"][0]
    assert (exit_code, first["code"]) == (1, fault_code)
    assert message in first["message"]
    assert first["remedy"]


@pytest.mark.parametrize("state", HEALTHY_STATES)
def test_a_state_that_only_resembles_a_fault_is_not_reported(state, tmp_path):
    _, answer = run_json("doctor", "-f", dump_of(tmp_path, HEALTHY_STATES[state]))
    assert [finding for finding in answer["findings"] if finding["code"] not in (WAITS, DOES_NOT_START)] == []


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([pod("p"), *map(lease, OF_KUBERNETES, (40, 40))], [], id="leases of 40 seconds ago"),
        pytest.param([pod("p"), *map(lease, OF_KUBERNETES, (60, 60))], ["O020"], id="leases of a minute ago"),
        pytest.param([pod("p"), lease("drawbridge-system/drawbridge", 50)], [], id="an old lease of drawbridge alone"),
        pytest.param(RESTARTING_POD, ["O117"], id="a container that restarts again and again"),
    ],
)  # fmt: skip
async def test_a_live_cluster_is_read_for_leases_and_states_of_containers(objects, expected):
    assert [finding.code for finding in diagnose(await survey(loaded(*FLEET, *objects), NOW))] == expected


def test_a_dump_does_not_show_whether_the_api_server_stores(tmp_path):
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, lease(KUBELET_LEASE, 600)))
    assert "O020" in {code for entry in answer["notChecked"] for code in entry["codes"]}


def webhook_configuration(**hook):
    client_config = {"url": "https://h/", "caBundle": "eA=="}
    webhook = {"name": "pods.mutate.drawbridge.dev", "clientConfig": client_config, "rules": [{}]}
    configuration = obj("MutatingWebhookConfiguration", "drawbridge", labels={"app.kubernetes.io/name": "drawbridge"})
    return configuration | {"apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [webhook | hook]}


def team_namespace(mode="enforce", **metadata):
    return namespace("team", labels={"drawbridge.dev/mode": mode}, **metadata)


INVALID_POD = Invalid("Pod is invalid: must be an integer")
WEBHOOK_DENIAL = Invalid('admission webhook "pods.mutate.drawbridge.dev" denied the request: 1500m is not whole')
NO_ANSWER = 'Internal error occurred: failed calling webhook "{}": deadline exceeded'
WEBHOOK_TIMEOUT = ApiError(NO_ANSWER.format("pods.mutate.drawbridge.dev"))
OTHER_WEBHOOK_TIMEOUT = ApiError(NO_ANSWER.format("guard.example.com"))


@pytest.mark.parametrize(
    ("objects", "error", "text"),
    [
        pytest.param([webhook_configuration(), team_namespace()], INVALID_POD, "bypassed the webhook", id="the webhook is bypassed"),
        pytest.param([webhook_configuration(), team_namespace()], WEBHOOK_TIMEOUT, 'failed calling webhook "pods.mutate.drawbridge.dev": deadline exceeded', id="the webhook does not answer"),
        pytest.param([webhook_configuration(), team_namespace()], WEBHOOK_DENIAL, "", id="the webhook denies the pod"),
        pytest.param([webhook_configuration(), team_namespace()], OTHER_WEBHOOK_TIMEOUT, "", id="another webhook does not answer"),
        pytest.param([webhook_configuration(), team_namespace()], BadRequest("else"), "", id="another error"),
        pytest.param([webhook_configuration(rules=[]), team_namespace()], INVALID_POD, "", id="the webhook has no rules yet"),
        pytest.param([webhook_configuration(), team_namespace("warn")], INVALID_POD, "", id="no namespace in mode enforce"),
        pytest.param([webhook_configuration(), team_namespace(deletionTimestamp=time_ago(1), finalizers=["x"])], INVALID_POD, "", id="the namespace is being deleted"),
    ],
)  # fmt: skip
async def test_a_dry_run_shows_whether_the_webhook_is_called(objects, error, text, monkeypatch):
    cluster = loaded(*FLEET, pod("p"), *objects)
    namespaces = []

    async def create(resource, obj, namespace=None, *, dry_run=False):
        assert dry_run
        namespaces.append(namespace)
        raise error

    monkeypatch.setattr(cluster, "create", create)
    findings = [finding.message for finding in diagnose(await survey(cluster, NOW)) if finding.code == "O015"]
    assert len(findings) == bool(text)
    assert all(text in message for message in findings)
    assert set(namespaces) <= {"team"}


@pytest.mark.parametrize(("days", "message"), [(1, ""), (-3, "of the kubeconfig expired at ")])
def test_only_an_expired_client_certificate_is_reported(days, message, tmp_path):
    file = tmp_path / "client.crt"
    created = NOW - timedelta(days=100)
    signer = authority.authority("people", now=created, life=timedelta(days=900))
    file.write_bytes(authority.leaf(signer, ["x"], now=created, life=timedelta(days=100 + days)).certificate)
    problem = loop.problem_of(str(file), NOW)
    assert (problem != "", message in problem) == (bool(message), True)
    assert loop.problem_of(str(tmp_path / "none"), NOW) == loop.problem_of("", NOW) == ""


async def test_the_reason_of_a_rejected_certificate_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(loop, "problem_of", lambda certificate, _: f"{certificate} is too old")
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: RefusingCluster())
    with pytest.raises(Failed, match=r"client\.crt is too old \(Unauthorized\)"):
        await asyncio.to_thread(loop.visit, "", "", RefusingCluster.look, "docs/operating.md")


class RefusingCluster:
    certificate = "client.crt"

    async def look(self):
        raise Unauthorized("Unauthorized")

    async def close(self):
        pass


def test_a_webhook_called_by_url_needs_no_secret(tmp_path):
    labels = {"app.kubernetes.io/name": "drawbridge"}
    secret = obj("Secret", "drawbridge-signature", namespace="drawbridge-system", labels=labels)
    codes = []
    for client_config in ({"url": "https://h/"}, {"service": {"name": "drawbridge", "namespace": "drawbridge-system"}}):
        hook = {"clientConfig": client_config | {"caBundle": "eA=="}}
        dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"), webhook_configuration(**hook), secret)
        _, answer = run_json("doctor", "-f", dump)
        codes.append([finding["code"] for finding in answer["findings"]])
    assert ("O006" in codes[0], "O006" in codes[1]) == (False, True)


@pytest.mark.parametrize(
    ("lease_age", "event_age", "reason"),
    [
        (0, 5, ""),
        (0, 4000, "67 minutes older than the dump"),
        (2000, 5, "33 minutes newer than the other objects"),
        (None, 90_000, ""),
        (None, 2700, ""),
    ],
    ids=("of the dump", "too old", "read later", "an old dump without Leases", "a younger dump without Leases"),
)
def test_events_of_another_time_are_listed_as_missing(lease_age, event_age, reason, tmp_path):
    refusal = event("FailedCreate", "ReplicaSet/set", QUOTA_ERROR, event_age)
    leases = [] if lease_age is None else [lease(KUBELET_LEASE, lease_age)]
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, replica_set(), refusal, *leases))
    reasons = [entry["reason"] for entry in answer["notChecked"] if "Event" in entry["inputs"]]
    assert [reason in text for text in reasons] == [True] * bool(reason)
    assert ("O101" in {finding["code"] for finding in answer["findings"]}) == (not reason)
