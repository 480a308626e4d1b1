"""The commands agree about the surroundings of a pod: modes, devices, claims, namespaces, queues and templates."""

import json

import pytest

from cluster import manifests
from dra.reason import Actor
from tests.agreement import Scene, as_list, ask, asked, dashboard, explain, files, resize, simulate, survey, translate
from tests.cli.agreement_scenes import (
    FLEET,
    FLEET_THAT_SERVES_GPUS,
    FLEET_WITH_DRIVER,
    FLEET_WITHOUT_GPUS,
    FPGA,
    GPU_PLACEHOLDER,
    ONE_GPU,
    POD,
    RAY_CLUSTER,
    WARNING_CONFIGURATION,
    WHOLE_GPU_CONFIGURATION,
    limits,
    namespace,
    object_of_kind,
    pod_template,
    reporting_only_cpu,
)
from tests.cli.running import run
from tests.contradictions import contradictions
from tests.corpus.move import GPU, migrated_fleet, node
from tests.objects import allocated, claim, claim_template, exactly, owner, result, workload


def installation_in_mode(mode, folder):
    """Return the manifests of an installation with this mode."""
    (folder / "installed.yaml").write_text(manifests.dump([WHOLE_GPU_CONFIGURATION | {"mode": mode}]))
    printed = run("manifests", "--image", "r.example/d:1", "--config", folder / "installed.yaml").stdout
    return [document.object for document in manifests.parse(printed, "")]


TAINT_SPEC = {"taints": [{"key": "t", "effect": "NoSchedule"}]}
FINDINGS_FIELD = {"check": "findings", "doctor": "findings", "survey": "obstacles"}


REQUEST = exactly("gpu.nvidia.com")


def allocated_claim(name, device, *pods, **metadata):
    """Return a claim that has this device and is reserved for these pods."""
    status = allocated(result(device, driver="gpu.nvidia.com", pool="a"))
    status |= {"reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]}
    return claim(name, REQUEST, namespace="n", uid=name, status=status, **metadata)


def test_the_commands_report_the_same_claims_and_pods(tmp_path):
    """The dump has two claims of deleted pods, a claim for a device that is gone, and a pod that was created before the webhook ran."""
    untranslated_pod, running_pod = (
        object_of_kind(*POD, ONE_GPU, uid="w"),
        object_of_kind(*POD, pod_template({}, nodeName="a"), name="runs", uid="runs"),
    )
    running_pod["status"] = {"phase": "Running"}
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    untranslated_pod["status"] = {"phase": "Pending", "conditions": [unschedulable]}
    owned_claim = allocated_claim("loose", "gpu-1", ownerReferences=[owner("Pod", "gone")])
    dump, config = tmp_path / "dump.json", tmp_path / "configuration.yaml"
    config.write_text(manifests.dump([WHOLE_GPU_CONFIGURATION]))
    dump.write_text(
        as_list(
            [
                *FLEET_WITH_DRIVER,
                namespace("enforce"),
                allocated_claim("stale", "gpu-0", "gone"),
                allocated_claim("ghost", "gpu-99", "runs"),
                owned_claim,
                untranslated_pod,
                running_pod,
            ]
        )
    )
    doctor_findings = json.dumps(asked("doctor", "-f", dump, "--config", config)["findings"])
    for name in ("stale", "ghost", "loose"):
        answer = asked("explain", "claim", f"n/{name}", "-f", dump, "--config", config)["claim"]
        is_wrong = bool(answer["claim"]["remarks"] or answer.get("wrong"))
        assert is_wrong == (f"n/{name}" in doctor_findings), (
            f"doctor and explain disagree about {name}; explain finds a fault: {is_wrong}"
        )
    reason = asked("explain", "pod/w", "-n", "n", "-f", dump, "--config", config)["pod"]["state"]["reasons"][0]
    simulated_pods = asked("simulate", "-f", dump, "--config", config)["pods"]
    assert reason["actor"] == Actor.USER
    assert "n/w" in doctor_findings
    assert not any(pod["node"] for pod in simulated_pods if pod["pod"] == "n/w")


@pytest.mark.parametrize(("label", "is_misspelt"), [("enforced", True), (False, True), ("warn", False), ("", False)])
def test_check_survey_and_doctor_agree_about_a_namespaces_mode(label, is_misspelt, tmp_path):
    dump = tmp_path / "dump.json"
    dump.write_text(
        as_list([*installation_in_mode("enforce", tmp_path), namespace(label), *FLEET, object_of_kind(*POD, ONE_GPU)])
    )
    findings_by_command = {command: asked(command, "-f", dump)[field] for command, field in FINDINGS_FIELD.items()}
    about_namespace = {
        command: {(finding["code"], finding["message"]) for finding in findings if finding["object"] == "Namespace/n"}
        for command, findings in findings_by_command.items()
    }
    assert len(about_namespace["check"]) == is_misspelt
    assert about_namespace["survey"] == about_namespace["check"]
    assert about_namespace["doctor"] == about_namespace["check"]


def test_explain_starts_with_the_workloads_unreadable_pod(tmp_path):
    """The head pod w-0-0 of the RayCluster fits. The worker pod has a placeholder as an amount."""
    answers = ask(Scene(object_of_kind(*RAY_CLUSTER, GPU_PLACEHOLDER), (), FLEET_WITHOUT_GPUS), tmp_path)
    assert "${GPUS}" in answers["explain"].said
    assert "w-0-0" not in answers["explain"].said.partition("cannot be read")[0]
    assert not contradictions(answers)


COUNTING_QUEUES = {
    "Queue": ("scheduling.volcano.sh/v1beta1", {"capability": {GPU: 2}}),
    "ClusterQueue": (
        "kueue.x-k8s.io/v1beta1",
        {"resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "f", "resources": [{"name": GPU}]}]}]},
    ),
}


@pytest.mark.parametrize("kind", COUNTING_QUEUES)
def test_the_commands_name_the_keys_that_a_queue_counts(kind, tmp_path):
    version, spec = COUNTING_QUEUES[kind]
    queue = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}
    answers = ask(Scene(queue, (), FLEET_WITH_DRIVER), tmp_path, (translate, survey, explain))
    assert answers["translate"].outcome == "left"
    assert {name: result.keys for name, result in answers.items()} == dict.fromkeys(answers, answers["translate"].keys)


def test_the_commands_find_no_keys_in_a_device_plugin(tmp_path):
    spec = {
        "nodeSelector": {"k8s.amazonaws.com/accelerator": "vgpu"},
        "containers": [{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
        "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    plugin = workload("DaemonSet", "w", spec, namespace="n", labels={"a": "b"})
    answers = ask(Scene(plugin, (), FLEET_WITH_DRIVER), tmp_path, (translate, survey, explain))
    assert {name: result.keys for name, result in answers.items()} == {name: {} for name in answers}


def test_a_runtime_class_restricts_the_nodes_of_a_pod(tmp_path):
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "r"}, "handler": "r"}
    runtime["scheduling"] = {"nodeSelector": {"pool": "x"}}
    pod = object_of_kind(*POD, pod_template(limits(gpu="1"), runtimeClassName="r"))
    answers = ask(Scene(pod, [runtime], FLEET_THAT_SERVES_GPUS), tmp_path)
    assert answers["simulate"].fits is False
    assert "before it in the queue" not in answers["explain"].said
    assert not contradictions(answers)


TAINTED_NODE_AND_ANOTHER = [
    obj | {"spec": TAINT_SPEC} if obj["metadata"]["name"] == "a" else obj
    for obj in migrated_fleet("a", "b", extended=GPU)
]
STORED = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
# A pod for all eight devices of the only node that the pod in question may use, and the fleet.
EARLIER_PODS = {
    "of a higher priority": (object_of_kind(*POD, pod_template(limits(gpu="8"), priority=5), name="first"), TAINTED_NODE_AND_ANOTHER),
    "that waits already": (object_of_kind(*POD, pod_template(limits(gpu="8")), name="stored", **STORED), migrated_fleet("n", extended=GPU)),
}  # fmt: skip


@pytest.mark.parametrize(("earlier", "fleet"), EARLIER_PODS.values(), ids=EARLIER_PODS)
def test_a_pod_waits_if_an_earlier_pod_takes_the_devices(earlier, fleet, tmp_path):
    scene = Scene(object_of_kind(*POD, ONE_GPU, name="a"), [earlier], reporting_only_cpu(*fleet))
    answers = ask(scene, tmp_path, (translate, simulate, explain, resize, dashboard))
    for command in ("simulate", "explain", "resize", "dashboard"):
        assert answers[command].fits is False, command
    assert "pods before it in the queue" in answers["explain"].said
    assert not contradictions(answers)


@pytest.mark.parametrize(
    ("key", "amount", "fleet", "scheduler"),
    [
        ("koordinator.sh/gpu", "100", FLEET_WITH_DRIVER, "default-scheduler"),
        (FPGA, "1", [node("a", **{FPGA: 4})], "koord-scheduler"),
    ],
)
def test_explain_names_the_scheduler_that_will_place_the_pod(key, amount, fleet, scheduler, tmp_path):
    """The webhook replaces the scheduler of a legacy system only in pods whose keys it translates."""
    pod = object_of_kind(*POD, pod_template({"limits": {key: amount}}, schedulerName="koord-scheduler"))
    answers = ask(Scene(pod, (), fleet), tmp_path)
    assert (answers["simulate"].fits, answers["explain"].fits) == (True, True)
    assert f"{scheduler} has not placed it yet" in answers["explain"].said
    assert not contradictions(answers)


def test_a_pod_uses_the_claim_template_in_the_files(tmp_path):
    template = claim_template("t", REQUEST, namespace="n")
    pod = pod_template({}, resourceClaims=[{"name": "x", "resourceClaimTemplateName": "t"}])
    scene = Scene(object_of_kind(*POD, pod), [template], FLEET_WITH_DRIVER)
    answers = ask(scene, tmp_path, (translate, simulate, explain))
    assert (answers["simulate"].fits, answers["explain"].fits) == (True, True)
    scene.object["spec"]["nodeSelector"] = {"pool": "x"}
    answers = ask(scene, tmp_path, (translate, simulate, explain))
    assert answers["simulate"].fits is False
    assert "pool=x" in answers["explain"].said


def test_the_error_of_a_pod_names_its_own_claim(tmp_path):
    pod, first = (object_of_kind(*POD, pod_template(limits(gpu="100")), name=name) for name in ("w", "a"))
    scene = Scene(pod, [first], FLEET_THAT_SERVES_GPUS, WARNING_CONFIGURATION)
    assert "ResourceClaim/n/w-" in ask(scene, tmp_path, (simulate,))["simulate"].said


def test_a_pod_refused_for_its_amount_has_no_prospect(tmp_path):
    """A claim for the amount would fit, but the pod is refused."""
    scene = Scene(object_of_kind(*POD, pod_template(limits(gpu="500m"))), (), FLEET_THAT_SERVES_GPUS)
    assert ask(scene, tmp_path, (explain,))["explain"].refused
    assert asked("explain", "pod/w", "-n", "n", *files(scene, tmp_path))["pod"]["prospect"] is None
