"""Every command that reads objects uses the same configuration."""

import json

import pytest
import yaml

from analysis.configuration import configuration_in_force
from cli.configuration import watched_configuration
from cluster import manifests
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.kubernetes import Kubernetes
from tests.cli.running import manifest, run, run_json
from tests.objects import config_map, container, namespace, pod, workload
from tests.webhook.pods import EXAMPLES

FLEET = EXAMPLES / "fleet"
SYSTEM_NAMESPACE = "drawbridge-system"
TOO_MUCH_MEMORY = "900000"  # more memory than a device has: refused where the webhook enforces


def shared_pod(name, memory):
    return pod(name, namespace="m", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory})


def mode_namespace(label=None):
    return namespace("m", labels={} if label is None else {"drawbridge.dev/mode": label})


def configuration(mode):
    return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": mode}


def installed_config_map(mode, namespace=SYSTEM_NAMESPACE):
    return config_map("drawbridge", namespace, **{"drawbridge.yaml": yaml.safe_dump(configuration(mode))})


def webhook_deployment(namespace=SYSTEM_NAMESPACE):
    pods = {"containers": [container("webhook")]}
    return workload("Deployment", "drawbridge-webhook", pods, labels={"a": "b"}, namespace=namespace)


def webhook_registration(namespace=SYSTEM_NAMESPACE):
    hook = {"name": "pods.mutate.drawbridge.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None"}
    hook["clientConfig"] = {"service": {"namespace": namespace, "name": "drawbridge", "path": "/mutate"}}
    metadata = {"name": "drawbridge"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": [hook]}  # fmt: skip


def installation(mode):
    return [installed_config_map(mode), webhook_deployment(), webhook_registration()]


# Objects beside two pods of namespace m; the mode of this namespace; the mode of the configuration (empty: none is found).
SCENES = {
    "no label, no configuration": ([mode_namespace()], "enforce", ""),
    "label observe": ([mode_namespace("observe")], "observe", ""),
    "label enforce": ([mode_namespace("enforce")], "enforce", ""),
    "unknown label": ([mode_namespace("Off")], "warn", ""),
    "empty label": ([mode_namespace("")], "enforce", ""),
    "file observe": ([mode_namespace(), configuration("observe")], "observe", "observe"),
    "file observe, label enforce": ([mode_namespace("enforce"), configuration("observe")], "enforce", "observe"),
    "file before ConfigMap": ([mode_namespace(), configuration("warn"), *installation("off")], "warn", "warn"),
    "installed observe": ([mode_namespace(), *installation("observe")], "observe", "observe"),
    "installed enforce, label observe": ([mode_namespace("observe"), *installation("enforce")], "observe", "enforce"),
    "installed observe, label enforce": ([mode_namespace("enforce"), *installation("observe")], "enforce", "observe"),
    "ConfigMap and Deployment": ([installed_config_map("observe"), webhook_deployment()], "observe", "observe"),
    "ConfigMap and webhook": ([installed_config_map("observe"), webhook_registration()], "observe", "observe"),
    "ConfigMap alone": ([installed_config_map("observe")], "enforce", ""),
    "a tenant's ConfigMap": ([installed_config_map("off", "m"), webhook_deployment(), webhook_registration()], "enforce", ""),
    "a tenant's ConfigMap and Deployment": ([installed_config_map("off", "m"), webhook_deployment("m"), *installation("warn")], "warn", "warn"),
    "a tenant's ConfigMap and Deployment, the system's webhook": ([installed_config_map("off", "m"), webhook_deployment("m"), webhook_registration()], "enforce", ""),
}  # fmt: skip


def is_translated(answer):
    """Return whether the GPU of pod p is translated."""
    [gpu_decision] = [
        decision
        for decision in answer["decisions"]
        if decision["object"] == "Pod/m/p" and decision["key"] == "nvidia.com/gpu"
    ]
    return gpu_decision["outcome"] in ("translated", "approximated")


def scene_file(name, folder):
    return manifest(folder / "all.json", *SCENES[name][0], shared_pod("p", "3000"), shared_pod("q", TOO_MUCH_MEMORY))


@pytest.mark.parametrize("name", SCENES)
def test_labels_files_and_installations_decide_about_the_mode(name, tmp_path):
    _, mode, configured_mode = SCENES[name]
    answer = run_json("translate", "-f", scene_file(name, tmp_path), "--inventory", FLEET)[1]
    assert answer["configuration"]["mode"] == (configured_mode or "enforce")
    assert (answer["configuration"]["source"] == "defaults") is (not configured_mode)
    assert is_translated(answer) is (mode == "enforce")


@pytest.mark.parametrize(
    "name", ["unknown label", "file observe, label enforce", "installed enforce, label observe", "ConfigMap alone"]
)
def test_every_command_uses_the_same_configuration(name, tmp_path):
    _, mode, configured_mode = SCENES[name]
    file = scene_file(name, tmp_path)
    inputs = ("-f", file, "-f", FLEET)
    is_enforced = mode == "enforce"

    answers = {
        "check": run_json("check", "-f", file, "--inventory", FLEET)[1],
        "survey": run_json("survey", *inputs)[1],
        "simulate": run_json("simulate", *inputs)[1],
        "explain": run_json("explain", "pod/p", "-n", "m", *inputs)[1],
        "resize": run_json("resize", "pod/p", "nvidia.com/gpu=1", "-n", "m", *inputs)[1],
        "doctor": run_json("doctor", *inputs)[1],
    }
    configurations = {name: answer["configuration"] for name, answer in answers.items()}
    assert {in_force["mode"] for in_force in configurations.values()} == {configured_mode or "enforce"}, configurations
    [source] = {in_force["source"] for in_force in configurations.values()}
    assert (source == "defaults") is (not configured_mode), source

    # The decisions follow the mode.
    refusals = [
        finding
        for finding in answers["check"]["findings"]
        if finding["object"] == "Pod/m/q" and finding["code"][0] == "R"
    ]
    assert any(finding["severity"] == "error" for finding in refusals) is is_enforced
    assert answers["survey"]["modes"].get("m", "enforce") == mode
    outcome_by_pod = {outcome["pod"]: outcome for outcome in answers["simulate"]["pods"]}
    assert ("share-" in str(outcome_by_pod["m/p"]["node"])) is is_enforced
    decisions = answers["explain"]["pod"]["webhook"]["decisions"]
    assert any(decision["outcome"] in ("translated", "approximated") for decision in decisions) is is_enforced


def test_commands_print_the_configuration_or_mode_that_is_given(tmp_path):
    pod_file = manifest(tmp_path / "plain.json", shared_pod("p", "3000"))
    config_file = manifest(tmp_path / "config.json", configuration("warn"))
    installed_file = manifest(tmp_path / "whole.json", shared_pod("p", "3000"), *installation("observe"))
    for command in (("translate", "-o", "report"), ("check",), ("survey",), ("simulate",), ("explain", "pod/p"), ("resize", "pod/p", "nvidia.com/gpu=1"), ("doctor", "-f", FLEET)):  # fmt: skip
        lines = [
            [line for line in run(*command, *inputs).stderr.splitlines() if line.startswith("configuration: ")]
            for inputs in (
                ("-f", pod_file),
                ("-f", pod_file, "--config", config_file),
                ("-f", config_file, "-f", pod_file),
                ("-f", installed_file),
                ("-f", installed_file, "-q"),
            )
        ]
        assert lines == [
            [],
            [f"configuration: {config_file}, mode warn"],
            [f"configuration: {config_file}:1, mode warn"],
            [f"configuration: ConfigMap {SYSTEM_NAMESPACE}/drawbridge, mode observe"],
            [],
        ], command
    assert run("dialects", "--config", config_file).stderr == f"configuration: {config_file}, mode warn\n"
    line = run("check", "-f", pod_file, "--mode", "off").stderr.splitlines()[0]
    assert line == "configuration: defaults, mode off (--mode)"


def test_only_check_and_doctor_continue_with_an_invalid_configuration(tmp_path):
    installed_file = manifest(tmp_path / "whole.yaml", shared_pod("p", "3000"), *installation("banana"))
    code, answer = run_json("check", "-f", installed_file)
    [finding] = [finding for finding in answer["findings"] if finding["code"] == "C001"]
    assert (code, finding["object"]) == (1, f"ConfigMap/{SYSTEM_NAMESPACE}/drawbridge")
    assert "drawbridge.yaml: line 3: the text 'banana' is not allowed" in finding["message"]
    assert answer["configuration"] == {"source": "defaults", "mode": "enforce"}
    for command in ("translate", "survey", "simulate", "explain pod/p", "resize pod/p nvidia.com/gpu=1"):
        result = run(*command.split(), "-f", installed_file)
        assert result.exit_code == 2, command
        assert f"ConfigMap {SYSTEM_NAMESPACE}/drawbridge: drawbridge.yaml: line 3" in result.stderr, command
    # `check` reports no findings about its inventory, so an invalid configuration there is an error.
    pod_file = manifest(tmp_path / "plain.json", shared_pod("p", "3000"))
    assert run("check", "-f", pod_file, "--inventory", installed_file).exit_code == 2
    # `doctor` reports an invalid configuration as a fault of the installation.
    _, answer = run_json("doctor", "-f", installed_file)
    assert "O002" in {finding["code"] for finding in answer["findings"]}
    for command in ("check", "doctor"):
        [warning] = [
            line for line in run(command, "-f", installed_file).stderr.splitlines() if "default configuration" in line
        ]
        assert f"ConfigMap {SYSTEM_NAMESPACE}/drawbridge is not valid: drawbridge.yaml: line 3" in warning


def test_two_installed_configurations_are_reported(tmp_path):
    objects = [
        installed_config_map("off", "a"),
        webhook_deployment("a"),
        installed_config_map("warn", "b"),
        webhook_deployment("b"),
    ]
    result = run("check", "-f", manifest(tmp_path / "both.json", shared_pod("p", "3000"), *objects))
    assert "several installed configurations were read: ConfigMap a/drawbridge and ConfigMap b/drawbridge" in result.stderr  # fmt: skip


class ForbiddingCluster(Embedded):
    """A cluster that forbids reading ConfigMaps."""

    async def get(self, resource, name, namespace=None):
        if resource.kind == "ConfigMap":
            raise Forbidden("configmaps is forbidden")
        return await super().get(resource, name, namespace)


@pytest.mark.parametrize("command", ["survey", "explain pod/p -n m", "resize pod/p nvidia.com/gpu=1 -n m", "snapshot"])
def test_the_installed_configuration_is_read_from_a_live_cluster(monkeypatch, tmp_path, command):
    objects = [mode_namespace(), *installation("observe"), installed_config_map("off", "m"), shared_pod("p", "3000")]
    objects += [document.object for document in manifests.read([FLEET])]
    snapshot_file = tmp_path / "saved.json"
    options = ["--to", snapshot_file, "--force"] if command == "snapshot" else []
    clusters = []
    for cluster_class in (Embedded, ForbiddingCluster):
        cluster = cluster_class()
        cluster.load(objects)
        clusters.append(cluster)
    allowed, forbidden = clusters
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: allowed)
    result = run(*command.split(), *options)
    assert f"configuration: ConfigMap {SYSTEM_NAMESPACE}/drawbridge, mode observe" in result.stderr.splitlines()
    if command == "snapshot":  # a snapshot has the same configuration as the cluster
        _, answer = run_json("survey", "-f", snapshot_file)
        assert answer["configuration"] == {"source": f"ConfigMap {SYSTEM_NAMESPACE}/drawbridge", "mode": "observe"}
        assert f"{json.dumps('m')}" in snapshot_file.read_text()
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: forbidden)
    result = run(*command.split(), *options)
    [warning] = [line for line in result.stderr.splitlines() if "default configuration" in line]
    assert f"ConfigMap {SYSTEM_NAMESPACE}/drawbridge cannot be read" in warning


def test_an_embedded_server_prefers_the_configuration_option(tmp_path):
    documents = manifests.parse(json.dumps(configuration("off")), "a.yaml")
    config = manifest(tmp_path / "config.json", configuration("warn"))
    for path, source, mode in (("", "a.yaml:1", "off"), (str(config), str(config), "warn")):
        watched, in_force = watched_configuration(path, documents)
        assert (in_force.source, watched.path, watched.current.file.mode) == (source, path, mode)


def test_the_source_is_the_last_configuration_or_the_defaults():
    assert configuration_in_force(None).source == "defaults"
    documents = manifests.parse("\n---\n".join(json.dumps(configuration(mode)) for mode in ("off", "warn")), "a.yaml")
    in_force = configuration_in_force(None, documents)
    assert (in_force.source, in_force.configuration.file.mode) == ("a.yaml:3", "warn")
