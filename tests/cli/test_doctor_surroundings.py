"""Faults around drawbridge in a dump: each has a finding with a remedy, and states that only resemble a fault have none."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from analysis import loop
from analysis.doctor import diagnose, survey
from certs import authority
from cluster.errors import ApiError, BadRequest, Invalid, Unauthorized
from cluster.kubernetes import Kubernetes
from rendering.exits import CommandFailed
from tests.allocator.service.sidecar import DRIVER, claim, gpus, loaded, node, pod
from tests.cli.commands.faults import FLEET
from tests.cli.running import manifest, run_json

NOW = datetime.now(UTC)
NATIVE = "kube-node-lease/n0"


def at(seconds):
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def lease(name, age, holder="it"):
    where, _, name = name.partition("/")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at(age)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": where}, "spec": spec}  # fmt: skip


def event(reason, about, message, age=5, uid=""):
    kind, _, name = about.partition("/")
    meta = {"name": f"{reason}-{name}".lower(), "namespace": "default"}
    involved = {"kind": kind, "namespace": "default", "name": name, "uid": uid}
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": involved, "reason": reason, "message": message, "lastTimestamp": at(age)}  # fmt: skip


def replicas(there=0, key="example.com/gpu", wanted=1):
    containers = [{"name": "c", "resources": {"limits": {key: "1"}}}]
    spec = {"replicas": wanted, "template": {"spec": {"containers": containers}}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "set", "namespace": "default"}, "spec": spec, "status": {"replicas": there}}  # fmt: skip


def job(**status):
    obj = replicas() | {"apiVersion": "batch/v1", "kind": "Job", "status": status}
    return obj | {"spec": {"template": obj["spec"]["template"]}}


def aged(obj, seconds, **more):
    obj["metadata"] |= {"creationTimestamp": at(seconds)} | more
    return obj


def deleted(obj, seconds, *finalizers):
    obj["metadata"] |= {"deletionTimestamp": at(seconds), "finalizers": list(finalizers)}
    return obj


def space(seconds, message="something remains"):
    meta = {"name": "default", "deletionTimestamp": at(seconds)}
    condition = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": message}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta, "status": {"phase": "Terminating", "conditions": [condition]}}  # fmt: skip


def away(name="n0", status="Unknown"):
    return node(name, conditions=[{"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "no word"}])  # fmt: skip


def rule(key="example.com/repair", **selector):
    spec = {"deviceSelector": {"driver": DRIVER} | selector, "taint": {"key": key, "effect": "NoExecute"}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "repair"}, "spec": spec}


def part(wanted):
    obj = gpus("n0", 2)
    obj["spec"]["pool"]["resourceSliceCount"] = wanted
    return obj


def emptied():
    new = gpus("n0", 0)
    new["metadata"]["name"] = "later"
    new["spec"]["pool"]["generation"] = gpus("n0", 2)["spec"]["pool"]["generation"] + 1
    return new


def held(name):
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": "p", "uid": "pod-p"}
    return claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}}


def seen_by_a_scheduler(obj):
    return obj | {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}


def on_node(phase="Pending"):
    obj = pod("p", "a", nodeName="n0")
    return obj | {"status": {"phase": phase}}


def full(used):
    name = "count/resourceclaimtemplates.resource.k8s.io"
    meta = {"name": "few", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {name: "2"}}, "status": {"hard": {name: "2"}, "used": {name: used}}}  # fmt: skip


def translated():
    name = f"drawbridge-{'0' * 32}"
    obj = aged(pod("p"), 5)
    obj["metadata"]["annotations"] = {"drawbridge.dev/templates": f'{{"{name}":"x"}}'}
    obj["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    return obj


def copied():
    obj = translated()
    del obj["metadata"]["annotations"]
    return aged(obj, 120)


def made():
    meta = {"name": f"drawbridge-{'0' * 32}", "namespace": "default", "creationTimestamp": at(5)}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": meta, "spec": {"spec": claim("any")["spec"]}}  # fmt: skip


WITH_TEMPLATE = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
QUOTA = 'pods "x" is forbidden: exceeded quota: few'
OF_A_WEBHOOK = 'Internal error occurred: failed calling webhook "guard.example.com": refused'
OF_A_POLICY = "a template for this pod cannot be created: ValidatingAdmissionPolicy 'labels' denied request: no owner"
GONE = "Failed to prepare: DRA driver is not registered"

FAULTS = {
    "no controller leads": ([lease(NATIVE, 0), lease("kube-system/kube-controller-manager", 60), pod("p")], "O017", "no kube-controller-manager has renewed it"),
    "no scheduler leads": ([lease(NATIVE, 0), lease("kube-system/kube-scheduler", 60), pod("p")], "O017", "no pod of its profiles is placed"),
    "a node is away": ([away("n9"), gpus("n9", 1), pod("p")], "O201", "no pod on it has a claim"),
    "a node is away for a reason that is not a text": ([node("n9", conditions=[{"type": "Ready", "status": "False", "reason": 5}]), gpus("n9", 1), pod("p")], "O201", "it is not ready, and no pod"),
    "a node with claims is away": ([away("n9"), held("a"), pod("p", "a", nodeName="n9")], "O201", "claims default/a keep its devices"),
    "no controller leads beside a clock that is ahead": ([lease(NATIVE, 0), lease("kube-system/kube-controller-manager", 60), lease("other/ahead", -3600), pod("p")], "O017", "no kube-controller-manager has renewed it"),
    "a quota": ([event("FailedCreate", "ReplicaSet/set", QUOTA), replicas(), pod("p")], "O101", "exceeded quota: few"),
    "a quota on a job": ([event("FailedCreate", "Job/set", QUOTA), job(), pod("p")], "O101", "exceeded quota: few"),
    "another's webhook": ([event("FailedCreate", "ReplicaSet/set", f"(combined from similar events): {OF_A_WEBHOOK}"), replicas(), pod("p")], "O101", f"its pods cannot be created: {OF_A_WEBHOOK}"),
    "a claim that may not be made": ([event("FailedResourceClaimCreation", "Pod/p", QUOTA), aged(pod("p", **WITH_TEMPLATE), 5)], "O106", "exceeded quota: few"),
    "a quota of templates": ([full("2"), translated()], "O105", "ResourceQuota default/few has no room for"),
    "a copy of a translated pod": ([copied()], "O105", "which is not created for a copy of a translated pod"),
    "a policy against templates": ([event("FailedTemplateCreation", "Pod/p", OF_A_POLICY), translated()], "O105", "denied request: no owner"),
    "a finalizer of others on a pod": ([held("a"), deleted(pod("p", "a", nodeName="n0"), 40, "example.com/keeps")], "O215", f"finalizer example.com/keeps keeps it and its devices {DRIVER}/n0/gpu-0"),
    "no scheduler of that name": ([aged(pod("p", "a", schedulerName="no-such-scheduler"), 40), claim("a")], "O109", "no scheduler called no-such-scheduler has tried default/p for 40 s"),
    "a driver that is gone": ([event("FailedPrepareDynamicResources", "Pod/p", GONE), held("a"), on_node()], "O112", "does not prepare the devices of default/p"),
    "half a pool": ([part(2), pod("p")], "D401", "1 of 2 slices of pool n0"),
    "a pool without devices": ([emptied(), pod("p")], "O208", "has published pool n0 without devices in generation 2, so the devices in the older n0"),
    "every device tainted": ([rule(), claim("a"), pod("p")], "O111", "that is not tolerated by ResourceClaim/default/a"),
    "a finalizer of others": ([deleted(held("a"), 40, "example.com/keeps"), pod("p", "a")], "O215", "finalizer example.com/keeps keeps it and its devices"),
    "a namespace that does not end": ([space(40), claim("b"), pod("p")], "O215", "something remains"),
}  # fmt: skip
WELL = {
    "a controller's lease": [lease(NATIVE, 0), lease("kube-system/kube-controller-manager", 10), pod("p")],
    "a lease without a holder": [lease(NATIVE, 0), lease("kube-system/kube-controller-manager", 900, ""), pod("p")],
    "a lease that a clock ahead has renewed": [lease(NATIVE, 0), lease("kube-system/kube-controller-manager", 2), lease("other/ahead", -3600), pod("p")],
    "an old dump with a lease that a clock ahead has renewed": [lease(NATIVE, 900), lease("kube-system/kube-controller-manager", 901), lease("other/ahead", 0), pod("p")],
    "an old dump": [lease(NATIVE, 900), lease("kube-system/kube-controller-manager", 901), pod("p")],
    "a node that is ready": [away("n9", "True"), gpus("n9", 1), pod("p")],
    "a node without devices": [away("n9"), pod("p", nodeName="n9")],
    "what is made by now": [event("FailedCreate", "ReplicaSet/set", QUOTA), replicas(1), pod("p")],
    "what is not wanted": [event("FailedCreate", "ReplicaSet/set", QUOTA), replicas(wanted=0), pod("p")],
    "what asks for no device": [event("FailedCreate", "ReplicaSet/set", QUOTA), replicas(key="cpu"), pod("p")],
    "what was said long ago": [event("FailedCreate", "ReplicaSet/set", QUOTA, 7200), replicas(), pod("p")],
    "a job that has ended": [event("FailedCreate", "Job/set", QUOTA), job(completionTime=at(1)), pod("p")],
    "a job that runs": [event("FailedCreate", "Job/set", QUOTA), job(active=1), pod("p")],
    "our own refusal": [event("FailedCreate", "ReplicaSet/set", 'admission webhook "pods.mutate.drawbridge.dev" denied the request: x'), replicas(), pod("p")],
    "a template that comes": [event("FailedResourceClaimCreation", "Pod/p", "template not found"), aged(pod("p", **WITH_TEMPLATE), 5)],
    "a claim that came": [event("FailedResourceClaimCreation", "Pod/p", QUOTA), pod("p", **WITH_TEMPLATE) | {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}],
    "an event of a pod that had its name": [event("FailedResourceClaimCreation", "Pod/p", QUOTA, uid="before"), pod("p", **WITH_TEMPLATE)],
    "a claim by its name": [event("FailedResourceClaimCreation", "Pod/p", QUOTA), pod("p", "a"), claim("a")],
    "a quota with room": [full("1"), translated()],
    "a pod that has just come": [aged(pod("p", "a", schedulerName="no-such-scheduler"), 5), claim("a")],
    "a claim that is not there": [aged(pod("p", "a", schedulerName="no-such-scheduler"), 40)],
    "a claim that is still to be made": [aged(pod("p", schedulerName="no-such-scheduler", **WITH_TEMPLATE), 40)],
    "a pod without devices": [aged(pod("p", schedulerName="no-such-scheduler"), 40)],
    "a scheduler that is busy": [aged(pod("p", "a", schedulerName="slow"), 40), claim("a"), seen_by_a_scheduler(aged(pod("q", schedulerName="slow"), 20))],
    "a pod that runs": [event("FailedPrepareDynamicResources", "Pod/p", GONE), held("a"), on_node("Running")],
    "one device tainted": [rule(device="gpu-0"), claim("a"), pod("p")],
    "a pod of a Job that is just ending": [held("a"), deleted(pod("p", "a", nodeName="n0"), 40, "batch.kubernetes.io/job-tracking")],
    "a pod without claims in deletion": [deleted(pod("p", nodeName="n0"), 40, "example.com/keeps")],
    "a template that is there": [event("FailedTemplateCreation", "Pod/p", OF_A_POLICY), translated(), made()],
    "a claim that has its device": [rule(), held("a"), pod("p", "a", nodeName="n0")],
    "what is just deleted": [deleted(claim("a"), 5, "example.com/keeps"), pod("p")],
    "a namespace that ends": [space(5), claim("b"), pod("p")],
    "a namespace without claims": [space(40), pod("p")],
}  # fmt: skip


def dump_of(path, objects):
    """Write a dump with a Lease. The newest Lease is the clock of the dump, so the result does not depend on the current time."""
    clock = [] if any(obj["kind"] == "Lease" for obj in objects) else [lease(NATIVE, 0)]
    return manifest(path / "dump.yaml", *FLEET, *clock, *objects)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_around_drawbridge_is_named_with_a_remedy(fault, tmp_path):
    objects, kind, message = FAULTS[fault]
    code, answer = run_json("doctor", "-f", dump_of(tmp_path, objects))
    first = answer["findings"][0]
    assert (code, first["code"]) == (1, kind)
    assert message in first["message"]
    assert first["remedy"]


@pytest.mark.parametrize("state", WELL)
def test_a_state_that_only_resembles_a_fault_is_not_reported(state, tmp_path):
    _, answer = run_json("doctor", "-f", dump_of(tmp_path, WELL[state]))
    kinds = {kind for _, kind, _ in FAULTS.values()}
    assert [finding for finding in answer["findings"] if finding["code"] in kinds] == []


@pytest.mark.parametrize(("age", "expected"), [(40, []), (60, ["O020"])])
async def test_a_store_without_lease_renewals_is_reported(age, expected):
    cluster = loaded(*FLEET, pod("p"), lease(NATIVE, age), lease("kube-system/kube-controller-manager", age))
    assert [finding.code for finding in diagnose(await survey(cluster, NOW))] == expected


async def test_our_lease_alone_gives_no_finding_about_the_store():
    cluster = loaded(*FLEET, pod("p"), lease("drawbridge-system/drawbridge", 50))
    assert diagnose(await survey(cluster, NOW)) == {}


def registered(**hook):
    called = {
        "name": "pods.mutate.drawbridge.dev",
        "clientConfig": {"url": "https://h/", "caBundle": "eA=="},
        "rules": [{}],
    }
    meta = {"name": "drawbridge", "labels": {"app.kubernetes.io/name": "drawbridge"}}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return kind | {"metadata": meta, "webhooks": [called | hook]}


def enforcing(mode="enforce", **more):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"drawbridge.dev/mode": mode}} | more}  # fmt: skip


PASSED = Invalid("Pod is invalid: must be an integer")
DENIED = Invalid('admission webhook "pods.mutate.drawbridge.dev" denied the request: 1500m is not a whole number')
CALLING = ApiError('Internal error occurred: failed calling webhook "pods.mutate.drawbridge.dev": deadline exceeded')
OTHERS = ApiError('Internal error occurred: failed calling webhook "guard.example.com": deadline exceeded')


@pytest.mark.parametrize(
    ("objects", "answer", "text"),
    [
        pytest.param([registered(), enforcing()], PASSED, "bypassed the webhook", id="passed by"),
        pytest.param([registered(), enforcing()], CALLING, 'failed calling webhook "pods.mutate.drawbridge.dev": deadline exceeded', id="no answer"),
        pytest.param([registered(), enforcing()], DENIED, "", id="asked"),
        pytest.param([registered(), enforcing()], OTHERS, "", id="another's"),
        pytest.param([registered(), enforcing()], BadRequest("else"), "", id="something else"),
        pytest.param([registered(rules=[]), enforcing()], PASSED, "", id="not called yet"),
        pytest.param([registered(), enforcing("warn")], PASSED, "", id="nowhere enforced"),
        pytest.param([registered(), enforcing(deletionTimestamp=at(1), finalizers=["x"])], PASSED, "", id="in a namespace that ends"),
    ],
)  # fmt: skip
async def test_an_unreachable_webhook_is_reported_by_a_dry_run(objects, answer, text, monkeypatch):
    cluster = loaded(*FLEET, pod("p"), *objects)
    tried = []

    async def create(resource, obj, namespace=None, *, dry_run=False):
        assert dry_run
        tried.append(namespace)
        raise answer

    monkeypatch.setattr(cluster, "create", create)
    findings = [finding.message for finding in diagnose(await survey(cluster, NOW)) if finding.code == "O015"]
    assert len(findings) == bool(text)
    assert all(text in message for message in findings)
    assert set(tried) <= {"team"}


@pytest.mark.parametrize(("days", "message"), [(1, ""), (-3, "of the kubeconfig expired at ")])
def test_an_expired_client_certificate_is_reported(days, message, tmp_path):
    file = tmp_path / "client.crt"
    made = NOW - timedelta(days=100)
    signer = authority.authority("people", now=made, life=timedelta(days=900))
    file.write_bytes(authority.leaf(signer, ["x"], now=made, life=timedelta(days=100 + days)).certificate)
    problem = loop.problem_of(str(file), NOW)
    assert (problem != "", message in problem) == (bool(message), True)
    assert loop.problem_of(str(tmp_path / "none"), NOW) == loop.problem_of("", NOW) == ""


async def test_the_reason_of_a_rejected_certificate_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(loop, "problem_of", lambda certificate, _: f"{certificate} is too old")
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Refused())
    with pytest.raises(CommandFailed, match=r"client\.crt is too old \(Unauthorized\)"):
        await asyncio.to_thread(loop.visit, "", "", Refused.look, "docs/operating.md")


class Refused:
    certificate = "client.crt"

    async def look(self):
        raise Unauthorized("Unauthorized")

    async def close(self):
        pass


def test_a_webhook_called_by_url_needs_no_secret(tmp_path):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "drawbridge-signature", "namespace": "drawbridge-system", "labels": {"app.kubernetes.io/name": "drawbridge"}}}  # fmt: skip
    codes = []
    for called in ({"url": "https://h/"}, {"service": {"name": "drawbridge", "namespace": "drawbridge-system"}}):
        hook = {"clientConfig": called | {"caBundle": "eA=="}}
        dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"), registered(**hook), secret)
        _, answer = run_json("doctor", "-f", dump)
        codes.append([finding["code"] for finding in answer["findings"]])
    assert ("O006" in codes[0], "O006" in codes[1]) == (False, True)
