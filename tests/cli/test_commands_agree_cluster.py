"""The commands agree about the surroundings of a pod: modes, devices, claims, namespaces, queues and templates."""

import json

import pytest

from analysis.explain.stories import Actor
from cluster import manifests
from tests.agreement import Scene, as_list, ask, asked, dashboard, explain, files, resize, simulate, survey, translate
from tests.cli.agreement_scenes import (
    EMPTY,
    FLEET,
    FPGA,
    MOVED,
    ONE,
    POD,
    RAY_CLUSTER,
    SERVED,
    UNFILLED,
    WARNED,
    WHOLE,
    having,
    limits,
    namespace,
    of_kind,
    pods_with,
)
from tests.cli.running import run
from tests.contradictions import contradictions
from tests.corpus.move import GPU, migrated_fleet, node, requesting_pod


def installed(mode, folder):
    """The manifests of an installation with this mode."""
    (folder / "installed.yaml").write_text(manifests.dump([WHOLE | {"mode": mode}]))
    printed = run("manifests", "--image", "r.example/d:1", "--config", folder / "installed.yaml").stdout
    return [document.object for document in manifests.parse(printed, "")]


@pytest.mark.parametrize("mode", ["observe", "warn", "off"])
@pytest.mark.parametrize("source", ["label", "object", "installed"])
def test_every_command_applies_the_mode_that_is_in_force(source, mode, tmp_path):
    around = {"label": [namespace(mode)], "object": [WHOLE | {"mode": mode}], "installed": installed(mode, tmp_path)}
    scene = Scene(
        of_kind(*POD, pods_with(limits(gpu="1"))),
        around[source],
        migrated_fleet("a"),
        WHOLE if source == "label" else None,
    )
    answers = ask(scene, tmp_path)
    assert answers["translate"].mode == mode
    assert not contradictions(answers)


def test_the_commands_count_the_same_devices(tmp_path):
    pods = [
        requesting_pod(2, nodeName="p"),
        requesting_pod(1, nodeName="p"),
        of_kind(*POD, pods_with({"limits": {KUBERNETES: "1"}})),
    ]
    pods[2]["spec"]["nodeName"] = "p"
    for number, obj in enumerate(pods):
        obj["metadata"] |= {"name": f"r{number}", "uid": str(number)}
        obj["status"] = {"phase": "Running"}
    old, new = (json.loads(json.dumps(obj)) for obj in migrated_fleet("a")[-1:] * 2)
    new["metadata"]["name"], new["spec"]["pool"]["generation"] = "new", 2
    dump = tmp_path / "dump.json"
    dump.write_text(as_list([*migrated_fleet("a")[:-1], old, new, node("p", gpu=4, **{KUBERNETES: 4}), *pods]))
    survey, nodes = (asked(command, "-f", dump) for command in ("survey", "free"))
    listed = [device for row in nodes["nodes"] for device in row["devices"]]
    held = sum(
        int(amount)
        for listed_device in listed
        if listed_device["state"] == "plugin"
        for holder in listed_device["holders"]
        for amount in holder["share"].values()
    )
    counts = {
        "devices": {
            "survey": sum(driver["devices"] for driver in survey["drivers"]),
            "free": sum(listed_device["state"] != "plugin" for listed_device in listed),
        },
        "in use": {
            "survey": sum(plugin["migratingDevices"] + plugin["stayingDevices"] for plugin in survey["plugins"]),
            "free": held,
        },
    }
    right = {"devices": 8, "in use": 4}
    wrong = {
        f"{what}: {name} {count}, right {right[what]}"
        for what in right
        for name, count in counts[what].items()
        if count != right[what]
    }
    assert not wrong


TAINTED = {"taints": [{"key": "t", "effect": "NoSchedule"}]}
KUBERNETES = "kubernetes.io/gpu"  # nodes report this key, but it is not an extended resource
FINDINGS_OF = {"check": "findings", "doctor": "findings", "survey": "obstacles"}


def claim(name, device, pod):
    """A claim with this device, reserved for a pod that does not exist."""
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
    }
    result = {"request": "r", "driver": "gpu.nvidia.com", "pool": "a", "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "n", "uid": name},
        "spec": {"devices": {"requests": [request]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod}],
        },
    }


def test_the_commands_report_the_same_claims_and_pods(tmp_path):
    """A claim of a deleted pod, a claim on a device that is gone, and a pod that was created before the webhook ran."""
    late, runs = of_kind(*POD, ONE, uid="w"), of_kind(*POD, pods_with({}, nodeName="a"), name="runs", uid="runs")
    runs["status"] = {"phase": "Running"}
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    late["status"] = {"phase": "Pending", "conditions": [unplaced]}
    loose = claim("loose", "gpu-1", "")
    del loose["status"]["reservedFor"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone", "controller": True}
    loose["metadata"]["ownerReferences"] = [owner]
    dump, config = tmp_path / "dump.json", tmp_path / "configuration.yaml"
    config.write_text(manifests.dump([WHOLE]))
    dump.write_text(
        as_list(
            [
                *MOVED,
                namespace("enforce"),
                claim("stale", "gpu-0", "gone"),
                claim("ghost", "gpu-99", "runs"),
                loose,
                late,
                runs,
            ]
        )
    )
    reported = json.dumps(asked("doctor", "-f", dump, "--config", config)["findings"])
    for name in ("stale", "ghost", "loose"):
        answer = asked("explain", "claim", f"n/{name}", "-f", dump, "--config", config)["claim"]
        wrong = bool(answer["claim"]["remarks"] or answer.get("wrong"))
        assert wrong == (f"n/{name}" in reported), f"explain finds {name} wrong: {wrong}"
    answer = asked("explain", "pod/w", "-n", "n", "-f", dump, "--config", config)["pod"]["nextStep"]
    pods = asked("simulate", "-f", dump, "--config", config)["pods"]
    assert answer["actor"] == Actor.USER
    assert "n/w" in reported
    assert not any(pod["node"] for pod in pods if pod["pod"] == "n/w")


def test_the_commands_read_the_same_files(tmp_path):
    (tmp_path / "pod.yaml").write_text(json.dumps(of_kind(*POD, pods_with(limits(gpu="1")))))
    (tmp_path / "chart.yaml").write_text("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n")
    for command in ("translate", "check", "survey", "simulate", "free", "doctor", "quota"):
        result = run(command, "-f", tmp_path, "-o", "json")
        assert not json.loads(result.stdout).get("errors"), f"a Helm template is an error for {command}"


@pytest.mark.parametrize(("label", "faulty"), [("enforced", True), (False, True), ("warn", False), ("", False)])
def test_the_commands_report_the_same_namespaces(label, faulty, tmp_path):
    dump = tmp_path / "dump.json"
    dump.write_text(as_list([*installed("enforce", tmp_path), namespace(label), *FLEET, of_kind(*POD, ONE)]))
    listed = {command: asked(command, "-f", dump)[field] for command, field in FINDINGS_OF.items()}
    named = {
        command: {(finding["code"], finding["message"]) for finding in findings if finding["object"] == "Namespace/n"}
        for command, findings in listed.items()
    }
    assert len(named["check"]) == faulty
    assert named["survey"] == named["check"]
    assert named["doctor"] == named["check"]


def test_explain_starts_with_the_workloads_unreadable_pod(tmp_path):
    """The head of the RayCluster fits, and its worker has a placeholder as an amount."""
    answers = ask(Scene(of_kind(*RAY_CLUSTER, UNFILLED), (), EMPTY), tmp_path)
    assert "${GPUS}" in answers["explain"].said
    assert "w-0-0" not in answers["explain"].said.partition("cannot be read")[0]
    assert not contradictions(answers)


COUNTING = {
    "Queue": ("scheduling.volcano.sh/v1beta1", {"capability": {GPU: 2}}),
    "ClusterQueue": (
        "kueue.x-k8s.io/v1beta1",
        {"resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": [{"name": GPU}]}]}]},
    ),
}


@pytest.mark.parametrize("kind", COUNTING)
def test_the_commands_name_the_keys_that_a_queue_counts(kind, tmp_path):
    version, spec = COUNTING[kind]
    queue = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    answers = ask(Scene(queue, (), MOVED), tmp_path, (translate, survey, explain))
    assert answers["translate"].outcome == "left"
    assert {name: result.keys for name, result in answers.items()} == dict.fromkeys(answers, answers["translate"].keys)


def test_the_commands_find_no_keys_in_a_device_plugin(tmp_path):
    spec = {
        "nodeSelector": {"k8s.amazonaws.com/accelerator": "vgpu"},
        "containers": [{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
        "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    plugin = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "w", "namespace": "n"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
        },
    }
    answers = ask(Scene(plugin, (), MOVED), tmp_path, (translate, survey, explain))
    assert {name: result.keys for name, result in answers.items()} == {name: {} for name in answers}


def test_a_runtime_class_restricts_the_nodes_of_a_pod(tmp_path):
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "r"},
        "handler": "r",
        "scheduling": {"nodeSelector": {"pool": "x"}},
    }
    answers = ask(Scene(of_kind(*POD, pods_with(limits(gpu="1"), runtimeClassName="r")), [runtime], SERVED), tmp_path)
    assert answers["simulate"].fits is False
    assert "before it in the queue" not in answers["explain"].said
    assert not contradictions(answers)


def test_devices_that_earlier_pods_take_are_not_room(tmp_path):
    """A taint keeps the pod from one node, and a pod of higher priority takes all devices of the other."""
    nodes = migrated_fleet("a", "b", extended=GPU)
    nodes = having(*[obj | {"spec": TAINTED} if obj["metadata"]["name"] == "a" else obj for obj in nodes])
    first = of_kind(*POD, pods_with(limits(gpu="8"), priority=5), name="first")
    answers = ask(
        Scene(of_kind(*POD, ONE), [first], nodes), tmp_path, (translate, simulate, explain, resize, dashboard)
    )
    for command in ("simulate", "explain", "resize", "dashboard"):
        assert answers[command].fits is False, command
    assert "pods before it in the queue" in answers["explain"].said
    assert not contradictions(answers)


def test_a_new_pod_comes_after_the_pods_that_wait(tmp_path):
    waiting = of_kind(*POD, pods_with(limits(gpu="8")), name="stored")
    waiting["metadata"] |= {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    scene = Scene(of_kind(*POD, ONE, name="a"), [waiting], having(*migrated_fleet("n", extended=GPU)))
    answers = ask(scene, tmp_path, (translate, simulate, explain, resize, dashboard))
    for command in ("simulate", "explain", "resize", "dashboard"):
        assert answers[command].fits is False, command
    assert not contradictions(answers)


@pytest.mark.parametrize(
    ("key", "amount", "fleet", "scheduler"),
    [
        ("koordinator.sh/gpu", "100", MOVED, "default-scheduler"),
        (FPGA, "1", [node("a", **{FPGA: 4})], "koord-scheduler"),
    ],
)
def test_a_pod_needs_no_scheduler_before_it_is_created(key, amount, fleet, scheduler, tmp_path):
    """If the webhook translates the keys of a pod with its legacy system's scheduler, it assigns the pod to another scheduler."""
    given = of_kind(*POD, pods_with({"limits": {key: amount}}, schedulerName="koord-scheduler"))
    answers = ask(Scene(given, (), fleet), tmp_path)
    assert (answers["simulate"].fits, answers["explain"].fits) == (True, True)
    assert f"{scheduler} has not placed it yet" in answers["explain"].said
    assert not contradictions(answers)


def test_a_pod_uses_the_claim_templates_beside_it(tmp_path):
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1},
    }
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    own = pods_with({}, resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}])
    answers = ask(Scene(of_kind(*POD, own), [made], MOVED), tmp_path, (translate, simulate, explain))
    assert (answers["simulate"].fits, answers["explain"].fits) == (True, True)
    own["spec"]["nodeSelector"] = {"pool": "x"}
    answers = ask(Scene(of_kind(*POD, own), [made], MOVED), tmp_path, (translate, simulate, explain))
    assert answers["simulate"].fits is False
    assert "pool=x" in answers["explain"].said


def test_the_error_of_a_pod_names_its_own_claim(tmp_path):
    many = pods_with(limits(gpu="100"))
    scene = Scene(of_kind(*POD, many), [of_kind(*POD, many, name="a")], SERVED, WARNED)
    assert "ResourceClaim/n/w-" in ask(scene, tmp_path, (simulate,))["simulate"].said


def test_a_pod_refused_for_its_amount_has_no_outlook(tmp_path):
    """A claim for the amount would fit, but the pod is refused."""
    scene = Scene(of_kind(*POD, pods_with(limits(gpu="500m"))), (), SERVED)
    assert ask(scene, tmp_path, (explain,))["explain"].refused
    assert asked("explain", "pod/w", "-n", "n", *files(scene, tmp_path))["pod"]["prospect"] is None
