"""What is wrong with drawbridge itself: each ill of an installation that is otherwise well, as `drawbridge manifests` prints it."""

import asyncio
import copy
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from analysis.doctor import components, installed
from analysis.doctor.rules import examine
from dra.validation import CODES
from tests.allocator.service.sidecar import loaded
from tests.cli.running import manifest, run
from tests.draws import draws
from tests.objects import pod

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SYSTEM = "drawbridge-system"
IMAGE = "registry.example.com/drawbridge:1"
WELL = run("manifests", "--image", IMAGE).stdout


def installation():
    """The objects of an installation with what servers and controllers add."""
    objects = list(yaml.safe_load_all(WELL))
    for obj in objects:
        if obj["kind"] == "Deployment":
            obj["status"] = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2}
        if obj["kind"].endswith("WebhookConfiguration"):
            waiting = yaml.safe_load(obj["metadata"]["annotations"]["drawbridge.dev/rules"])
            for hook in obj["webhooks"]:
                hook["rules"] = waiting[hook["name"]]
                hook["clientConfig"]["caBundle"] = "eA=="
    objects.append(lease("drawbridge", "drawbridge-controller-0", NOW))
    return objects


def lease(name, holder, renewed):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    return {"kind": "Lease", "metadata": {"name": name, "namespace": SYSTEM}, "spec": spec}


def parts_of(objects, *unread):
    parts = installed.parts_of(objects, frozenset(unread))
    return installed.with_configuration(parts, installed.installed_configuration(parts))


def examined(objects, *answers, unread=("Secret",)):
    parts = parts_of(objects, *unread)
    parts = components.msgspec.structs.replace(parts, answers=answers)
    return [*examine(parts, NOW), *components.replica_warnings(parts, NOW)]


def of(objects, kind, name):
    [match] = [obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return match


def test_pods_of_a_tenant_with_our_label_are_not_asked():
    """What a replica says on its metrics port is believed: its certificate, its configuration, its readiness."""
    labels = {"app.kubernetes.io/name": "drawbridge"}
    pods = [{"kind": "Pod", "metadata": {"name": "p", "namespace": name, "labels": labels}} for name in (SYSTEM, "team")]  # fmt: skip
    forged = {"kind": "Deployment", "metadata": {"name": "drawbridge-webhook", "namespace": "team", "labels": labels}}

    def asked(*unread):
        parts = installed.parts_of([*installation(), *pods, forged], frozenset(unread))
        return [obj["metadata"]["namespace"] for obj in parts.of_kinds("Pod")]

    assert asked() == [SYSTEM]
    assert asked("ClusterRoleBinding") == [SYSTEM, "team"], "nothing is known of who may be ours"


def test_of_an_installation_that_is_well_nothing_is_found():
    digest = parts_of(installation()).digest
    replica = components.answer_of("p", "[+]x ok\n[!]lease: another replica leads\n", f'drawbridge_configuration_info{{sha256="{digest}"}} 1.0\n')  # fmt: skip
    assert examined(installation(), replica) == []


def test_pods_older_than_their_account_have_new_tokens_after_an_hour():
    objects = installation()
    another_account(objects)
    of(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=61)).isoformat()  # fmt: skip
    of(objects, "Pod", "older")["metadata"]["creationTimestamp"] = (NOW - timedelta(minutes=90)).isoformat()
    assert examined(objects) == []


def test_where_nothing_is_installed_there_is_nothing_to_examine():
    others = [{"kind": "Namespace", "metadata": {"name": "default"}}]
    assert installed.parts_of(others, frozenset()) is None


def scale(objects, **status):
    of(objects, "Deployment", "drawbridge-webhook")["status"] |= status


def webhook_pod(**status):
    return pod("p", namespace=SYSTEM, labels={"app.kubernetes.io/component": "webhook"}, status=status)


def waiting(reason):
    return webhook_pod(
        containerStatuses=[{"name": "webhook", "state": {"waiting": {"reason": reason, "message": "no such image"}}}]
    )


def no_image(objects):
    scale(objects, readyReplicas=0)
    objects.append(waiting("ImagePullBackOff"))


def killed_again(objects):
    """Without memory: the kubelet's message about waiting does not name that."""
    scale(objects, readyReplicas=0)
    objects.append(waiting("CrashLoopBackOff"))
    [status] = objects[-1]["status"]["containerStatuses"]
    status["lastState"] = {"terminated": {"reason": "OOMKilled"}}


def between_restarts(objects):
    scale(objects, readyReplicas=0)
    ended = {"reason": "Error", "message": "Usage: drawbridge webhook\nerror: no such option: --no-such\n"}
    objects.append(webhook_pod(containerStatuses=[{"name": "webhook", "state": {"terminated": ended}}]))


def not_made(objects):
    scale(
        objects, readyReplicas=0, conditions=[{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    )


def no_node(objects):
    scale(objects, readyReplicas=1)
    objects.append(webhook_pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]))


def twice(objects):
    other = copy.deepcopy(of(objects, "Deployment", "drawbridge-webhook"))
    other["metadata"]["namespace"] = "gpu-tools"
    objects.append(other)


def of_two_versions(objects):
    [container] = of(objects, "Deployment", "drawbridge-controller")["spec"]["template"]["spec"]["containers"]
    container["image"] = "registry.example.com/drawbridge:0"


def renew(objects, **changes):
    of(objects, "Lease", "drawbridge")["spec"] |= changes


def another_account(objects):
    """The account is made again between two of its pods."""
    account = of(objects, "ServiceAccount", "drawbridge-webhook")["metadata"]
    account["creationTimestamp"] = (NOW - timedelta(minutes=50)).isoformat()
    for name, minutes in (("older", 51), ("later", 49)):
        obj = webhook_pod() | {"spec": {"serviceAccountName": "drawbridge-webhook"}}
        obj["metadata"] |= {"name": name, "creationTimestamp": (NOW - timedelta(minutes=minutes)).isoformat()}
        objects.append(obj)


def misspelt(objects):
    objects.append({"kind": "Namespace", "metadata": {"name": "a", "labels": {"drawbridge.dev/mode": "enforced"}}})


def half(objects):
    objects[:] = [obj for obj in objects if obj["kind"] in ("Deployment", "Lease", "MutatingWebhookConfiguration")]


def scaled_down(objects):
    """Its pods still run, and another workload's do not yet."""
    of(objects, "Deployment", "drawbridge-webhook")["spec"]["replicas"] = 0
    of(objects, "Deployment", "drawbridge-authority")["status"]["readyReplicas"] = 0


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
        of(objects, "ConfigMap", "drawbridge")["data"]["drawbridge.yaml"] = bridged
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
def test_the_scheduler_reads_a_profile_that_pods_are_sent_to(change, message):
    objects = installation()
    change(objects)
    findings = [
        finding for finding in examined(objects) if finding.object == f"ConfigMap/{SYSTEM}/drawbridge-scheduler"
    ]
    assert [finding.code for finding in findings] == ["O002"] * bool(message)
    assert all(message in finding.message for finding in findings)


ILLS = [
    (on_no_node, "O009", "DaemonSet/gpu-tools/others", "has the labels drawbridge.dev/driver=reference"),
    (scaled_down, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "it has 0 replicas"),
    (no_image, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "ImagePullBackOff: no such image"),
    (killed_again, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "CrashLoopBackOff, OOMKilled: "),
    (between_restarts, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "Error: error: no such option"),
    (not_made, "O009", "Deployment/drawbridge-system/drawbridge-webhook", "no pod can be created: exceeded quota"),
    (no_node, "O010", "Deployment/drawbridge-system/drawbridge-webhook", "not scheduled: 0/1 nodes"),
    (twice, "O001", "Namespace/gpu-tools", "run in drawbridge-system, gpu-tools"),
    (of_two_versions, "O011", "Deployment/drawbridge-system/drawbridge-controller", "drawbridge:0"),
    (lambda it: renew(it, holderIdentity=""), "O012", "Lease/drawbridge-system/drawbridge", "no replica holds it"),
    (lambda it: it.remove(of(it, "Lease", "drawbridge")), "O012", "Lease/drawbridge-system/drawbridge", "does not exist"),
    (lambda it: renew(it, renewTime=(NOW + timedelta(hours=1)).isoformat()), "O013", "Lease/drawbridge-system/drawbridge", "still to come"),
    (another_account, "O005", "ServiceAccount/drawbridge-system/drawbridge-webhook", "made again after older, whose tokens"),
    (misspelt, "D214", "Namespace/a", "'enforced'"),
    (half, "O003", "ValidatingWebhookConfiguration/drawbridge", "the same is true of"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("break_it", "what", "about", "message"), ILLS, ids=lambda case: getattr(case, "__name__", None)
)
def test_an_ill_of_the_installation_is_named_first(break_it, what, about, message):
    objects = installation()
    break_it(objects)
    findings = examined(objects)
    assert (findings[0].code, findings[0].object) == (what, about), findings
    assert message in findings[0].message
    assert findings[0].remedy


def without_certificates(objects):
    """What the authority writes was never written."""
    for obj in objects:
        for hook in obj.get("webhooks", ()):
            del hook["clientConfig"]["caBundle"]


@pytest.mark.parametrize("status", [{"replicas": 0}, {"readyReplicas": 0}], ids=str)
def test_an_authority_that_is_stopped_comes_before_what_it_did_not_write(status):
    objects = installation()
    without_certificates(objects)
    authority = of(objects, "Deployment", "drawbridge-authority")
    authority["spec" if "replicas" in status else "status"] |= status
    of(objects, "Deployment", "drawbridge-webhook")["status"]["readyReplicas"] = 0
    first, *effects, last = examined(objects, unread=())
    deployment = f"Deployment/{SYSTEM}/drawbridge-"
    assert [(one.code, one.object) for one in (first, last)] == [("O009", f"{deployment}{name}") for name in ("authority", "webhook")]  # fmt: skip
    assert [one.code for one in effects] == ["O006", "O008", "O008"]


ANSWERS = [
    ("", 'drawbridge_configuration_info{sha256="0"} 1.0\n', "O002", "p use other content"),
    ("[!]webhooks: kept\n", "", "O018", "[!]webhooks: kept"),
    ("", "# TYPE drawbridge_certificate_days gauge\ndrawbridge_certificate_days -2.0\n", "O006", "expired 2 days ago"),
]  # fmt: skip


@pytest.mark.parametrize(("readiness", "metrics", "what", "message"), ANSWERS)
def test_a_fault_in_the_answer_of_a_replica_is_found(readiness, metrics, what, message):
    [finding] = examined(installation(), components.answer_of("p", readiness, metrics))
    assert finding.code == what
    assert message in finding.message


def test_a_config_map_that_a_workload_mounts_and_an_administrator_writes_is_missed():
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
def test_a_kind_that_could_not_be_read_is_not_reported_as_missing(kind):
    objects = [obj for obj in installation() if not obj["kind"].startswith(kind)]
    assert examined(objects, unread=("Secret", kind, f"{kind}Binding")) == []


def test_additional_fields_of_an_installation_are_no_difference():
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


def spots(value, *path):
    """Every place in an object."""
    for key, member in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*path, key)
        yield from spots(member, *path, key)


def test_an_installation_in_a_dump_may_have_any_shape(tmp_path):
    draw = random.Random("an installation of any shape")
    secret = {"kind": "Secret", "metadata": {"name": "drawbridge", "namespace": SYSTEM}, "data": {"tls.crt": "eA=="}}
    whole = [*json.loads(json.dumps(installation())), secret, lease("n1", "n1", NOW)]
    file = tmp_path / "dump.json"
    for _ in range(draws(160)):
        objects = copy.deepcopy(whole)
        # Objects before the parts of objects: a policy has a hundred times the places of a Lease.
        obj = draw.choice(objects)
        *path, last = draw.choice([spot for spot in spots(obj) if spot not in (("kind",), ("apiVersion",))])
        place = obj
        for key in path:
            place = place[key]
        place[last] = draw.choice(ODD)
        file.write_text("\n".join(map(json.dumps, objects)))
        done = run("doctor", "-f", file)
        assert "this is a bug" not in done.output, (obj["kind"], path, last, place[last], done.output[-600:])


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
def test_an_object_of_another_shape_is_named_with_its_place(kind, place, value, tmp_path):
    objects = json.loads(json.dumps(installation()))
    odd = next(obj for obj in objects if obj["kind"] == kind)
    inner = odd
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    done = run("doctor", "-f", tmp_path / "dump.json")
    assert done.exit_code in (1, 3), done.output
    assert f"warning: not read: {kind} " in done.output
    assert "/" + "/".join(map(str, place)) in done.output


def test_an_invalid_time_tells_no_age(tmp_path):
    objects = [*json.loads(json.dumps(installation())), lease("n1", "n1", NOW)]
    for obj in objects:
        if obj["kind"] == "Lease":
            obj |= {"apiVersion": "coordination.k8s.io/v1"}
            obj["spec"]["renewTime"] = "yesterday"
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, objects)))
    done = run("doctor", "-f", tmp_path / "dump.json")
    assert done.exit_code == 0, done.output


def test_a_deployment_that_names_no_namespace_is_taken_for_one_of_default(tmp_path):
    labels = {"app.kubernetes.io/name": "drawbridge"}
    lost = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "drawbridge-allocator", "labels": labels},
    }
    done = run("doctor", "-f", manifest(tmp_path / "file.json", lost | {"spec": {}}))
    assert "Deployment/default/drawbridge-webhook\n  error O003: it belongs" in done.stdout
    assert "bug" not in done.stderr
