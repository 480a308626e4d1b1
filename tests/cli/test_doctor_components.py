"""`drawbridge doctor` reports each fault of an installation."""

import asyncio
import copy
import json
from base64 import b64encode
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from analysis.doctor import components, installed
from analysis.doctor.doctor_rules import examine
from analysis.loading import reading_of
from certs import authority
from dra.validation import CODES
from tests.allocator.service.sidecar import loaded
from tests.cli.installations import IMAGE, NAMESPACE, NOW, installation, object_named
from tests.cli.running import run_manifests
from tests.loops import every
from tests.objects import config_map, pod, workload
from webhook.state import Features

ROOT = Path(__file__).parents[2]
READING = replace(reading_of([], Features()), read_at=NOW)


def parts_of(objects, *unread_kinds):
    """Return the objects of the installation among these objects, with its configuration."""
    parts = installed.parts_of(objects, frozenset(unread_kinds))
    return installed.with_configuration(parts, installed.installed_configuration(parts))


def findings_about(objects, *answers, unread_kinds=("Secret",)):
    parts = parts_of(objects, *unread_kinds)
    parts = components.msgspec.structs.replace(parts, answers=answers)
    return [*examine(parts, READING), *components.replica_warnings(parts, NOW)]


def test_a_tenants_pods_with_our_label_are_not_queried():
    """Doctor trusts what a pod answers about certificates, configuration and readiness, so it asks only pods of the installation."""
    labels = {"app.kubernetes.io/name": "drawbridge"}
    pods = [{"kind": "Pod", "metadata": {"name": "p", "namespace": name, "labels": labels}} for name in (NAMESPACE, "team")]  # fmt: skip
    forged = {"kind": "Deployment", "metadata": {"name": "drawbridge-webhook", "namespace": "team", "labels": labels}}

    def queried_namespaces(*unread_kinds):
        parts = installed.parts_of([*installation(), *pods, forged], frozenset(unread_kinds))
        return [obj["metadata"]["namespace"] for obj in parts.of_kinds("Pod")]

    assert queried_namespaces() == [NAMESPACE]
    assert queried_namespaces("ClusterRoleBinding") == [NAMESPACE, "team"], (
        "without the bindings doctor cannot tell which namespaces are ours"
    )


def test_a_healthy_installation_has_no_findings():
    digest = parts_of(installation()).digest
    replica = components.answer_of("p", "[+]x ok\n[!]lease: another replica leads\n", f'drawbridge_configuration_info{{sha256="{digest}"}} 1.0\n')  # fmt: skip
    assert findings_about(installation(), replica) == []


def test_an_hour_after_an_account_was_recreated_pods_are_healthy():
    objects = installation()
    recreated_account(objects)
    object_named(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=61)).isoformat()  # fmt: skip
    object_named(objects, "Pod", "older")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=90)).isoformat()
    set_bundle(objects, "drawbridge", 9)
    assert findings_about(objects) == []


def test_without_an_installation_there_are_no_parts():
    assert installed.parts_of([{"kind": "Namespace", "metadata": {"name": "default"}}], frozenset()) is None


def set_webhook_status(objects, **status):
    object_named(objects, "Deployment", "drawbridge-webhook")["status"] |= status


def webhook_pod(**status):
    return pod("p", namespace=NAMESPACE, labels={"app.kubernetes.io/component": "webhook"}, status=status)


def waiting_pod(reason, **status):
    state = {"waiting": {"reason": reason, "message": "no such image"}}
    return webhook_pod(containerStatuses=[{"name": "webhook", "state": state, **status}])


def image_not_pulled(objects):
    set_webhook_status(objects, readyReplicas=0)
    objects.append(waiting_pod("ImagePullBackOff"))


def out_of_memory(objects):
    """Let a container that ran out of memory wait for a restart. The kubelet's message does not mention the memory."""
    set_webhook_status(objects, readyReplicas=0)
    objects.append(waiting_pod("CrashLoopBackOff", lastState={"terminated": {"reason": "OOMKilled"}}))


def between_restarts(objects):
    set_webhook_status(objects, readyReplicas=0)
    termination = {"reason": "Error", "message": "Usage: drawbridge webhook\nerror: no such option: --no-such\n"}
    objects.append(webhook_pod(containerStatuses=[{"name": "webhook", "state": {"terminated": termination}}]))


def pods_not_created(objects):
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    set_webhook_status(objects, readyReplicas=0, conditions=[condition])


def pod_without_node(objects):
    set_webhook_status(objects, readyReplicas=1)
    objects.append(webhook_pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]))


def missing_lease(objects):
    objects.remove(object_named(objects, "Lease", "drawbridge"))


def two_installations(objects):
    second_deployment = copy.deepcopy(object_named(objects, "Deployment", "drawbridge-webhook"))
    second_deployment["metadata"]["namespace"] = "gpu-tools"
    objects.append(second_deployment)


def two_versions(objects):
    [container] = object_named(objects, "Deployment", "drawbridge-controller")["spec"]["template"]["spec"]["containers"]
    container["image"] = "registry.example.com/drawbridge:0"


def recreated_account(objects):
    """Recreate the ServiceAccount after its first pod and before its second pod."""
    account = object_named(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]
    account["creationTimestamp"] = (NOW - timedelta(minutes=50)).isoformat()
    for name, minutes in (("older", 51), ("later", 49)):
        obj = webhook_pod() | {"spec": {"serviceAccountName": "drawbridge-webhook"}}
        obj["metadata"] |= {"name": name, "creationTimestamp": (NOW - timedelta(minutes=minutes)).isoformat()}
        objects.append(obj)


def misspelt_mode(objects):
    objects.append({"kind": "Namespace", "metadata": {"name": "a", "labels": {"drawbridge.dev/mode": "enforced"}}})


def missing_objects(objects):
    objects[:] = [obj for obj in objects if obj["kind"] in ("Deployment", "Lease", "MutatingWebhookConfiguration")]


def scaled_down(objects):
    """Scale the webhook to 0 while its pods still run. The pods of the authority are not ready."""
    object_named(objects, "Deployment", "drawbridge-webhook")["spec"]["replicas"] = 0
    object_named(objects, "Deployment", "drawbridge-authority")["status"]["readyReplicas"] = 0


def daemon_set_without_node(objects):
    pod_spec, status = {"nodeSelector": {"drawbridge.dev/driver": "reference"}}, {"observedGeneration": 1}
    objects.append(workload("DaemonSet", "others", pod_spec, namespace="gpu-tools", status=status))


def set_bundle(objects, name, years):
    """Set the CA of this name, created two years ago, for this many years."""
    signer = authority.authority(name, now=NOW - timedelta(days=730), life=timedelta(days=365 * years))
    hooks = object_named(objects, "MutatingWebhookConfiguration", "drawbridge")["webhooks"]
    hooks[0]["clientConfig"]["caBundle"] = b64encode(signer.certificate).decode()


PROFILE_WITH_PLUGIN = {"schedulerName": "drawbridge", "plugins": {"multiPoint": {"enabled": [{"name": "Drawbridge"}]}}}


PROFILES = {
    "plugin": ([PROFILE_WITH_PLUGIN], ""),
    "misspelt profile": ([PROFILE_WITH_PLUGIN | {"schedulerName": "drawbrigde"}], "no profile in it is called drawbridge"),
    "no plugin": ([{"schedulerName": "drawbridge"}], "does not enable the plugin Drawbridge"),
    "malformed profiles": (["drawbridge", 7], "no profile in it is called drawbridge"),
}  # fmt: skip


@pytest.mark.parametrize(("profiles", "message"), PROFILES.values(), ids=PROFILES)
def test_a_profile_of_the_scheduler_has_to_use_the_bridge(profiles, message):
    objects = installation()
    configuration = (
        "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nbridge: {schedulerName: drawbridge}\n"
    )
    object_named(objects, "ConfigMap", "drawbridge")["data"]["drawbridge.yaml"] = configuration
    content = json.dumps({"profiles": profiles})
    scheduler = config_map("drawbridge-scheduler", NAMESPACE, **{"scheduler.yaml": content})
    findings = [
        finding
        for finding in findings_about([*objects, scheduler])
        if finding.object == f"ConfigMap/{NAMESPACE}/drawbridge-scheduler"
    ]
    assert [finding.code for finding in findings] == ["O002"] * bool(message)
    assert all(message in finding.message for finding in findings)


FAULTS = [
    (daemon_set_without_node, "O009", "DaemonSet/gpu-tools/others", "has the labels drawbridge.dev/driver=reference"),
    (scaled_down, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "it has 0 replicas"),
    (image_not_pulled, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "ImagePullBackOff: no such image"),
    (out_of_memory, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "CrashLoopBackOff, OOMKilled: "),
    (between_restarts, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "Error: error: no such option"),
    (pods_not_created, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "no pod can be created: exceeded quota"),
    (pod_without_node, "O010", "Deployment/drawbridge-system/drawbridge-webhook", "not scheduled: 0/1 nodes"),
    (two_installations, "O001", "Namespace/gpu-tools", "run in drawbridge-system, gpu-tools"),
    (two_versions, "O011", "Deployment/drawbridge-system/drawbridge-controller", "drawbridge:0"),
    (partial(set_bundle, name="drawbridge", years=1), "O007", "MutatingWebhookConfiguration/drawbridge", "its caBundle expired at 2025-01-01 12:00"),
    (partial(set_bundle, name="other", years=9), "O007", "MutatingWebhookConfiguration/drawbridge", "its caBundle has the CA CN=other 2024-01-02T12:00:00Z, which is not"),
    (missing_lease, "O012", "Lease/drawbridge-system/drawbridge", "does not exist"),
    (recreated_account, "O005", "ServiceAccount/drawbridge-system/drawbridge-webhook", "created again after the pods older, whose tokens"),
    (misspelt_mode, "D214", "Namespace/a", "'enforced'"),
    (missing_objects, "O003", "ValidatingWebhookConfiguration/drawbridge", "the same is true of"),
]  # fmt: skip


@every(("add_fault", "code", "object_name", "message"), FAULTS)
def test_a_fault_of_the_installation_is_the_first_finding(add_fault, code, object_name, message):
    objects = installation()
    add_fault(objects)
    findings = findings_about(objects)
    assert (findings[0].code, findings[0].object) == (code, object_name), findings
    assert message in findings[0].message
    assert findings[0].remedy


def remove_certificates(objects):
    """Remove the certificates, as if the authority had never written them."""
    for obj in objects:
        for hook in obj.get("webhooks", ()):
            del hook["clientConfig"]["caBundle"]


@pytest.mark.parametrize("status", [{"replicas": 0}, {"readyReplicas": 0}], ids=str)
def test_a_stopped_authority_is_reported_before_its_missing_certificates(status):
    objects = installation()
    remove_certificates(objects)
    authority = object_named(objects, "Deployment", "drawbridge-authority")
    authority["spec" if "replicas" in status else "status"] |= status
    object_named(objects, "Deployment", "drawbridge-webhook")["status"]["readyReplicas"] = 0
    first, *effects, last = findings_about(objects, unread_kinds=())
    deployment = f"Deployment/{NAMESPACE}/drawbridge-"
    assert [(finding.code, finding.object) for finding in (first, last)] == [("O009", f"{deployment}{name}") for name in ("authority", "webhook")]  # fmt: skip
    assert [finding.code for finding in effects] == ["O006", "O008", "O008"]


REPLICA_ANSWERS = [
    ("", 'drawbridge_configuration_info{sha256="0"} 1.0\n', "O002", "p use another configuration"),
    ("[!]webhooks: kept\n", "", "O018", "[!]webhooks: kept"),
    ("", "# TYPE drawbridge_certificate_days gauge\ndrawbridge_certificate_days -2.0\n", "O006", "expired 2 days ago"),
]  # fmt: skip


@pytest.mark.parametrize(("readiness", "metrics", "code", "message"), REPLICA_ANSWERS)
def test_a_fault_in_a_replicas_answer_is_reported(readiness, metrics, code, message):
    [finding] = findings_about(installation(), components.answer_of("p", readiness, metrics))
    assert finding.code == code
    assert message in finding.message


def test_a_missing_config_map_of_the_administrator_is_reported():
    printed = list(yaml.safe_load_all(run_manifests("--image", IMAGE, driver=True).stdout))
    driver_objects = [obj for obj in printed if "drawbridge-driver" in components.name_of(obj)]
    ready_everywhere = {"desiredNumberScheduled": 1, "numberReady": 1}
    object_named(driver_objects, "DaemonSet", "drawbridge-driver")["status"] = ready_everywhere
    objects = [*installation(), *driver_objects]
    [finding] = findings_about(objects)
    assert (finding.code, finding.object) == ("O003", "ConfigMap/drawbridge-driver/drawbridge-inventory")
    assert "DeviceInventory" in finding.remedy
    inventory = config_map("drawbridge-inventory", "drawbridge-driver")
    assert findings_about([*objects, inventory]) == []
    for stored_objects, finding_count in (((), 1), ((inventory,), 0)):
        parts = asyncio.run(installed.read_parts(loaded(*stored_objects), objects, frozenset({"Secret"}), None))
        assert len(examine(parts, READING)) == finding_count


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicy", "ClusterRole", "MutatingWebhookConfiguration"])
def test_an_unreadable_kind_is_not_reported_as_missing(kind):
    objects = [obj for obj in installation() if not obj["kind"].startswith(kind)]
    assert findings_about(objects, unread_kinds=("Secret", kind, f"{kind}Binding")) == []


def test_only_additional_fields_are_no_difference():
    printed = {"rules": [{"verbs": ["get", "list"], "resources": ["pods"]}], "empty": {}, "no": False}
    stored_rule = {"verbs": ["watch", "list", "get"], "resources": ["pods", "nodes"]}
    stored = {"rules": [stored_rule, {"verbs": ["*"]}], "more": 1}
    assert components.differs(printed, stored, "x") == ""
    assert components.differs(stored, printed, "x") == "x.rules[0]"
    assert components.differs({"a": [{"name": "n", "v": 1}]}, {"a": [{"name": "n", "v": 2}]}, "x") == "x.a[0].v"


def test_every_code_of_doctor_is_on_the_page_of_findings():
    codes = {code for code in CODES if code.startswith("O")}
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert codes
    assert sorted(code for code in codes if f"**{code}**" not in page) == []
