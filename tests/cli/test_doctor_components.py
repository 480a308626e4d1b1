"""What `drawbridge doctor` reports about an installation with a single fault."""

import asyncio
import copy
import json
import random
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from analysis.doctor import components, installed
from analysis.doctor.rules import examine
from dra.validation import CODES
from tests.allocator.service.sidecar import loaded
from tests.cli.installations import IMAGE, NOW, SYSTEM, installation, lease, object_named
from tests.cli.running import manifest, run
from tests.draws import draws
from tests.objects import pod

ROOT = Path(__file__).parents[2]


def parts_of(objects, *unread):
    parts = installed.parts_of(objects, frozenset(unread))
    return installed.with_configuration(parts, installed.installed_configuration(parts))


def examined(objects, *answers, unread=("Secret",)):
    parts = parts_of(objects, *unread)
    parts = components.msgspec.structs.replace(parts, answers=answers)
    return [*examine(parts, NOW), *components.replica_warnings(parts, NOW)]


def test_a_tenants_pods_with_our_label_are_not_queried():
    """Doctor trusts the metrics of a replica: its certificate, its configuration, its readiness."""
    labels = {"app.kubernetes.io/name": "drawbridge"}
    pods = [{"kind": "Pod", "metadata": {"name": "p", "namespace": name, "labels": labels}} for name in (SYSTEM, "team")]  # fmt: skip
    forged = {"kind": "Deployment", "metadata": {"name": "drawbridge-webhook", "namespace": "team", "labels": labels}}

    def queried_namespaces(*unread):
        parts = installed.parts_of([*installation(), *pods, forged], frozenset(unread))
        return [obj["metadata"]["namespace"] for obj in parts.of_kinds("Pod")]

    assert queried_namespaces() == [SYSTEM]
    assert queried_namespaces("ClusterRoleBinding") == [SYSTEM, "team"], "nothing is known of who may be ours"


def test_a_healthy_installation_has_no_findings():
    digest = parts_of(installation()).digest
    replica = components.answer_of("p", "[+]x ok\n[!]lease: another replica leads\n", f'drawbridge_configuration_info{{sha256="{digest}"}} 1.0\n')  # fmt: skip
    assert examined(installation(), replica) == []


def test_an_hour_after_a_new_account_old_pods_are_healthy():
    objects = installation()
    another_account(objects)
    object_named(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=61)).isoformat()  # fmt: skip
    object_named(objects, "Pod", "older")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=90)).isoformat()
    assert examined(objects) == []


def test_without_an_installation_there_are_no_parts():
    others = [{"kind": "Namespace", "metadata": {"name": "default"}}]
    assert installed.parts_of(others, frozenset()) is None


def scale(objects, **status):
    object_named(objects, "Deployment", "drawbridge-webhook")["status"] |= status


def webhook_pod(**status):
    return pod("p", namespace=SYSTEM, labels={"app.kubernetes.io/component": "webhook"}, status=status)


def waiting(reason):
    return webhook_pod(
        containerStatuses=[{"name": "webhook", "state": {"waiting": {"reason": reason, "message": "no such image"}}}]
    )


def no_image(objects):
    scale(objects, readyReplicas=0)
    objects.append(waiting("ImagePullBackOff"))


def out_of_memory(objects):
    """The kubelet's waiting message does not mention the lack of memory."""
    scale(objects, readyReplicas=0)
    objects.append(waiting("CrashLoopBackOff"))
    [status] = objects[-1]["status"]["containerStatuses"]
    status["lastState"] = {"terminated": {"reason": "OOMKilled"}}


def between_restarts(objects):
    scale(objects, readyReplicas=0)
    ended = {"reason": "Error", "message": "Usage: drawbridge webhook\nerror: no such option: --no-such\n"}
    objects.append(webhook_pod(containerStatuses=[{"name": "webhook", "state": {"terminated": ended}}]))


def pods_not_created(objects):
    scale(
        objects, readyReplicas=0, conditions=[{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    )


def no_node(objects):
    scale(objects, readyReplicas=1)
    objects.append(webhook_pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]))


def two_installations(objects):
    other = copy.deepcopy(object_named(objects, "Deployment", "drawbridge-webhook"))
    other["metadata"]["namespace"] = "gpu-tools"
    objects.append(other)


def of_two_versions(objects):
    [container] = object_named(objects, "Deployment", "drawbridge-controller")["spec"]["template"]["spec"]["containers"]
    container["image"] = "registry.example.com/drawbridge:0"


def renew(objects, **changes):
    object_named(objects, "Lease", "drawbridge")["spec"] |= changes


def another_account(objects):
    """The ServiceAccount was recreated after its first pod and before its second pod."""
    account = object_named(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]
    account["creationTimestamp"] = (NOW - timedelta(minutes=50)).isoformat()
    for name, minutes in (("older", 51), ("later", 49)):
        obj = webhook_pod() | {"spec": {"serviceAccountName": "drawbridge-webhook"}}
        obj["metadata"] |= {"name": name, "creationTimestamp": (NOW - timedelta(minutes=minutes)).isoformat()}
        objects.append(obj)


def misspelt_mode(objects):
    objects.append({"kind": "Namespace", "metadata": {"name": "a", "labels": {"drawbridge.dev/mode": "enforced"}}})


def incomplete(objects):
    objects[:] = [obj for obj in objects if obj["kind"] in ("Deployment", "Lease", "MutatingWebhookConfiguration")]


def scaled_down(objects):
    """The webhook is scaled to 0 and its pods still run. The pods of the authority are not ready yet."""
    object_named(objects, "Deployment", "drawbridge-webhook")["spec"]["replicas"] = 0
    object_named(objects, "Deployment", "drawbridge-authority")["status"]["readyReplicas"] = 0


def on_no_node(objects):
    spec = {"template": {"spec": {"nodeSelector": {"drawbridge.dev/driver": "reference"}}}}
    status = {"observedGeneration": 1, "desiredNumberScheduled": 0}
    meta = {"name": "others", "namespace": "gpu-tools"}
    objects.append({"kind": "DaemonSet", "metadata": meta, "spec": spec, "status": status})


def read_by_the_scheduler(*profiles, **more):
    def change(objects):
        bridged = (
            "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nbridge: {schedulerName: drawbridge}\n"
        )
        object_named(objects, "ConfigMap", "drawbridge")["data"]["drawbridge.yaml"] = bridged
        content = json.dumps({"profiles": list(profiles)} | more)
        meta = {"name": "drawbridge-scheduler", "namespace": SYSTEM}
        objects.append({"kind": "ConfigMap", "metadata": meta, "data": {"scheduler.yaml": content}})

    return change


WITH_PLUGIN = {"schedulerName": "drawbridge", "plugins": {"multiPoint": {"enabled": [{"name": "Drawbridge"}]}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (read_by_the_scheduler(WITH_PLUGIN), ""),
        (read_by_the_scheduler({"schedulerName": "drawbridge"}, extenders=[{"urlPrefix": "http://127.0.0.1"}]), ""),
        (read_by_the_scheduler(WITH_PLUGIN | {"schedulerName": "drawbrigde"}), "no profile in it is called drawbridge"),
        (read_by_the_scheduler({"schedulerName": "drawbridge"}), "neither the plugin Drawbridge nor an extender"),
        (read_by_the_scheduler("drawbridge", 7), "no profile in it is called drawbridge"),
    ],
)
def test_the_schedulers_configuration_needs_the_bridges_profile(change, message):
    objects = installation()
    change(objects)
    findings = [
        finding for finding in examined(objects) if finding.object == f"ConfigMap/{SYSTEM}/drawbridge-scheduler"
    ]
    assert [finding.code for finding in findings] == ["O002"] * bool(message)
    assert all(message in finding.message for finding in findings)


FAULTS = [
    (on_no_node, "O009", "DaemonSet/gpu-tools/others", "has the labels drawbridge.dev/driver=reference"),
    (scaled_down, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "it has 0 replicas"),
    (no_image, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "ImagePullBackOff: no such image"),
    (out_of_memory, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "CrashLoopBackOff, OOMKilled: "),
    (between_restarts, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "Error: error: no such option"),
    (pods_not_created, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "no pod can be created: exceeded quota"),
    (no_node, "O010", "Deployment/drawbridge-system/drawbridge-webhook", "not scheduled: 0/1 nodes"),
    (two_installations, "O001", "Namespace/gpu-tools", "run in drawbridge-system, gpu-tools"),
    (of_two_versions, "O011", "Deployment/drawbridge-system/drawbridge-controller", "drawbridge:0"),
    (lambda objects: renew(objects, holderIdentity=""), "O012", "Lease/drawbridge-system/drawbridge", "no replica holds it"),
    (lambda objects: objects.remove(object_named(objects, "Lease", "drawbridge")), "O012", "Lease/drawbridge-system/drawbridge", "does not exist"),
    (lambda objects: renew(objects, renewTime=(NOW + timedelta(hours=1)).isoformat()), "O013", "Lease/drawbridge-system/drawbridge", "is in the future"),
    (another_account, "O005", "ServiceAccount/drawbridge-system/drawbridge-webhook", "created again after the pods older, whose tokens"),
    (misspelt_mode, "D214", "Namespace/a", "'enforced'"),
    (incomplete, "O003", "ValidatingWebhookConfiguration/drawbridge", "the same is true of"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("break_it", "code", "about", "message"), FAULTS, ids=lambda case: getattr(case, "__name__", None)
)
def test_a_fault_of_the_installation_is_the_first_finding(break_it, code, about, message):
    objects = installation()
    break_it(objects)
    findings = examined(objects)
    assert (findings[0].code, findings[0].object) == (code, about), findings
    assert message in findings[0].message
    assert findings[0].remedy


def without_certificates(objects):
    """The authority has never written its certificates."""
    for obj in objects:
        for hook in obj.get("webhooks", ()):
            del hook["clientConfig"]["caBundle"]


@pytest.mark.parametrize("status", [{"replicas": 0}, {"readyReplicas": 0}], ids=str)
def test_a_stopped_authority_comes_before_its_missing_certificates(status):
    objects = installation()
    without_certificates(objects)
    authority = object_named(objects, "Deployment", "drawbridge-authority")
    authority["spec" if "replicas" in status else "status"] |= status
    object_named(objects, "Deployment", "drawbridge-webhook")["status"]["readyReplicas"] = 0
    first, *effects, last = examined(objects, unread=())
    deployment = f"Deployment/{SYSTEM}/drawbridge-"
    assert [(finding.code, finding.object) for finding in (first, last)] == [("O009", f"{deployment}{name}") for name in ("authority", "webhook")]  # fmt: skip
    assert [finding.code for finding in effects] == ["O006", "O008", "O008"]


ANSWERS = [
    ("", 'drawbridge_configuration_info{sha256="0"} 1.0\n', "O002", "p use another configuration"),
    ("[!]webhooks: kept\n", "", "O018", "[!]webhooks: kept"),
    ("", "# TYPE drawbridge_certificate_days gauge\ndrawbridge_certificate_days -2.0\n", "O006", "expired 2 days ago"),
]  # fmt: skip


@pytest.mark.parametrize(("readiness", "metrics", "code", "message"), ANSWERS)
def test_a_fault_in_a_replicas_response_is_reported(readiness, metrics, code, message):
    [finding] = examined(installation(), components.answer_of("p", readiness, metrics))
    assert finding.code == code
    assert message in finding.message


def test_a_missing_config_map_of_the_administrator_is_reported():
    printed = list(yaml.safe_load_all(run("manifests", "--image", IMAGE, "--driver").stdout))
    driver = [obj for obj in printed if obj["metadata"].get("namespace") == "drawbridge-driver"]
    for obj in driver:
        if obj["kind"] == "DaemonSet":
            obj["status"] = {"desiredNumberScheduled": 1, "numberReady": 1}
    cluster_wide = [obj for obj in printed if "drawbridge-driver" in obj["metadata"]["name"] and obj not in driver]
    objects = [*installation(), *driver, *cluster_wide]
    [finding] = examined(objects)
    assert (finding.code, finding.object) == ("O003", "ConfigMap/drawbridge-driver/drawbridge-inventory")
    assert "DeviceInventory" in finding.remedy
    meta = {"name": "drawbridge-inventory", "namespace": "drawbridge-driver"}
    inventory = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}}
    assert examined([*objects, inventory]) == []
    for stored, expected in (((), 1), ((inventory,), 0)):
        parts = asyncio.run(installed.read_parts(loaded(*stored), objects, frozenset({"Secret"}), None))
        assert len(examine(parts, NOW)) == expected


@pytest.mark.parametrize("kind", ["ValidatingAdmissionPolicy", "ClusterRole", "MutatingWebhookConfiguration"])
def test_an_unreadable_kind_is_not_reported_as_missing(kind):
    objects = [obj for obj in installation() if not obj["kind"].startswith(kind)]
    assert examined(objects, unread=("Secret", kind, f"{kind}Binding")) == []


def test_additional_fields_of_an_installation_are_ignored():
    shipped = {"rules": [{"verbs": ["get", "list"], "resources": ["pods"]}], "empty": {}, "no": False}
    has = {"rules": [{"verbs": ["watch", "list", "get"], "resources": ["pods", "nodes"]}, {"verbs": ["*"]}], "more": 1}
    assert components.differs(shipped, has, "x") == ""
    assert components.differs(has, shipped, "x") == "x.rules[0]"
    assert components.differs({"a": [{"name": "n", "v": 1}]}, {"a": [{"name": "n", "v": 2}]}, "x") == "x.a[0].v"


def test_every_finding_is_on_the_page_of_findings():
    codes = {code for code in CODES if code.startswith("O")}
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert codes
    assert sorted(code for code in codes if f"**{code}**" not in page) == []


ODD = (None, 0, -1, 1e300, True, "", "x", "%", "tomorrow", [], {}, [1], [None], ["x"], [{}], {"a": 1})


def paths_in(value, *path):
    """The path of each member of an object."""
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*path, key)
        yield from paths_in(member, *path, key)


def test_an_installation_with_malformed_fields_causes_no_exception(tmp_path):
    draw = random.Random("an installation of any shape")
    secret = {"kind": "Secret", "metadata": {"name": "drawbridge", "namespace": SYSTEM}, "data": {"tls.crt": "eA=="}}
    whole = [*json.loads(json.dumps(installation())), secret, lease("n1", "n1", NOW)]
    file = tmp_path / "dump.json"
    for _ in range(draws(160)):
        objects = copy.deepcopy(whole)
        # Draw the object first: a policy has a hundred times as many fields as a Lease.
        obj = draw.choice(objects)
        *path, last = draw.choice([spot for spot in paths_in(obj) if spot not in (("kind",), ("apiVersion",))])
        place = obj
        for key in path:
            place = place[key]
        place[last] = draw.choice(ODD)
        file.write_text("\n".join(map(json.dumps, objects)))
        result = run("doctor", "-f", file)
        assert "this is a bug" not in result.output, (obj["kind"], path, last, place[last], result.output[-600:])


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("Deployment", ("metadata", "annotations"), "x"),
        ("Deployment", ("status",), [1]),
        ("Deployment", ("spec", "template", "spec"), []),
        ("ConfigMap", ("data",), "x"),
        ("Namespace", ("metadata", "labels"), -1),
        ("ValidatingWebhookConfiguration", ("webhooks", 0, "matchConditions"), [{"name": "a", "expression": {}}]),
    ],
)
def test_a_malformed_object_is_reported_with_its_pointer(kind, place, value, tmp_path):
    objects = json.loads(json.dumps(installation()))
    odd = next(obj for obj in objects if obj["kind"] == kind)
    inner = odd
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    result = run("doctor", "-f", tmp_path / "dump.json")
    assert result.exit_code in (1, 3), result.output
    assert f"warning: not read: {kind} " in result.output
    assert "/" + "/".join(map(str, place)) in result.output


def test_an_invalid_renew_time_is_ignored(tmp_path):
    objects = [*json.loads(json.dumps(installation())), lease("n1", "n1", NOW)]
    for obj in objects:
        if obj["kind"] == "Lease":
            obj |= {"apiVersion": "coordination.k8s.io/v1"}
            obj["spec"]["renewTime"] = "yesterday"
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    result = run("doctor", "-f", tmp_path / "dump.json")
    assert result.exit_code == 0, result.output


def test_a_deployment_without_a_namespace_is_in_default(tmp_path):
    labels = {"app.kubernetes.io/name": "drawbridge"}
    lost = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "drawbridge-allocator", "labels": labels},
    }
    result = run("doctor", "-f", manifest(tmp_path / "file.json", lost | {"spec": {}}))
    assert "Deployment/default/drawbridge-webhook\n  error O003: it belongs" in result.stdout
    assert "bug" not in result.stderr
