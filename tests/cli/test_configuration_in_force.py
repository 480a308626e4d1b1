"""Every command that reads objects uses the same configuration."""

import json

import pytest
import yaml

from analysis.configuration import configuration_in_force, watched_configuration
from cluster import manifests
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from cluster.kubernetes import Kubernetes
from tests.cli.running import manifest, run, run_json
from tests.objects import config_map, container, namespace, pod, workload
from tests.webhook.pods import EXAMPLES

FLEET = EXAMPLES / "fleet"
SERVICE = "drawbridge-system"
BAD = "900000"  # more memory than a device has: refused where the webhook enforces


def shared_pod(name, memory):
    return pod(name, namespace="m", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory})


def mode_namespace(label=None):
    return namespace("m", labels={} if label is None else {"drawbridge.dev/mode": label})


def configuration(mode):
    return {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mode": mode}


def installed_config_map(mode, namespace=SERVICE):
    return config_map("drawbridge", namespace, **{"drawbridge.yaml": yaml.safe_dump(configuration(mode))})


def webhook_deployment(namespace=SERVICE):
    pods = {"containers": [container("webhook")]}
    return workload("Deployment", "drawbridge-webhook", pods, labels={"a": "b"}, namespace=namespace)


def registration(where=SERVICE):
    hook = {"name": "pods.mutate.drawbridge.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None"}
    hook["clientConfig"] = {"service": {"namespace": where, "name": "drawbridge", "path": "/mutate"}}
    metadata = {"name": "drawbridge"}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": metadata, "webhooks": [hook]}  # fmt: skip


def installed(mode):
    return [installed_config_map(mode), webhook_deployment(), registration()]


# The objects beside two pods of namespace m, the mode in force for them, and the mode of the configuration.
SCENES = {
    "plain": ([mode_namespace()], "enforce", ""),
    "label observe": ([mode_namespace("observe")], "observe", ""),
    "label warn": ([mode_namespace("warn")], "warn", ""),
    "label off": ([mode_namespace("off")], "off", ""),
    "label enforce": ([mode_namespace("enforce")], "enforce", ""),
    "unknown label": ([mode_namespace("Off")], "warn", ""),
    "empty label": ([mode_namespace("")], "enforce", ""),
    "file observe": ([mode_namespace(), configuration("observe")], "observe", "observe"),
    "file warn": ([mode_namespace(), configuration("warn")], "warn", "warn"),
    "file off": ([mode_namespace(), configuration("off")], "off", "off"),
    "file observe, label enforce": ([mode_namespace("enforce"), configuration("observe")], "enforce", "observe"),
    "file before ConfigMap": ([mode_namespace(), configuration("warn"), *installed("off")], "warn", "warn"),
    "installed observe": ([mode_namespace(), *installed("observe")], "observe", "observe"),
    "installed off": ([mode_namespace(), *installed("off")], "off", "off"),
    "installed enforce, label observe": ([mode_namespace("observe"), *installed("enforce")], "observe", "enforce"),
    "installed observe, label enforce": ([mode_namespace("enforce"), *installed("observe")], "enforce", "observe"),
    "ConfigMap and Deployment": ([installed_config_map("observe"), webhook_deployment()], "observe", "observe"),
    "ConfigMap and webhook": ([installed_config_map("observe"), registration()], "observe", "observe"),
    "ConfigMap alone": ([installed_config_map("observe")], "enforce", ""),
    "a tenant's ConfigMap": ([installed_config_map("off", "m"), webhook_deployment(), registration()], "enforce", ""),
    "a tenant's ConfigMap and Deployment": ([installed_config_map("off", "m"), webhook_deployment("m"), *installed("warn")], "warn", "warn"),
    "a tenant's, beside a webhook elsewhere": ([installed_config_map("off", "m"), webhook_deployment("m"), registration()], "enforce", ""),
}  # fmt: skip


def mode_of_translate(answer):
    [good] = [
        decision
        for decision in answer["decisions"]
        if decision["object"] == "Pod/m/p" and decision["key"] == "nvidia.com/gpu"
    ]
    return good["outcome"] in ("translated", "approximated")


@pytest.fixture(params=SCENES.values(), ids=SCENES)
def scene(request, tmp_path):
    objects, mode, configured = request.param
    return manifest(tmp_path / "all.json", *objects, shared_pod("p", "3000"), shared_pod("q", BAD)), mode, configured


def test_every_command_uses_the_same_configuration(scene):
    file, mode, configured = scene
    inputs = ("-f", file, "-f", FLEET)
    acts = mode == "enforce"

    answers = {
        "translate": run_json("translate", "-f", file, "--inventory", FLEET)[1],
        "check": run_json("check", "-f", file, "--inventory", FLEET)[1],
        "survey": run_json("survey", *inputs)[1],
        "simulate": run_json("simulate", *inputs)[1],
        "explain": run_json("explain", "pod/p", "-n", "m", *inputs)[1],
        "resize": run_json("resize", "pod/p", "nvidia.com/gpu=1", "-n", "m", *inputs)[1],
        "doctor": run_json("doctor", *inputs)[1],
    }
    configurations = {name: answer["configuration"] for name, answer in answers.items()}
    assert {in_force["mode"] for in_force in configurations.values()} == {configured or "enforce"}, configurations
    [source] = {in_force["source"] for in_force in configurations.values()}
    assert (source == "defaults") is (not configured), source

    # The decisions follow the mode.
    assert mode_of_translate(answers["translate"]) is acts
    refused = [
        finding
        for finding in answers["check"]["findings"]
        if finding["object"] == "Pod/m/q" and finding["code"][0] == "R"
    ]
    assert any(finding["severity"] == "error" for finding in refused) is (mode == "enforce")
    assert answers["survey"]["modes"].get("m", "enforce") == mode
    placed = {outcome["pod"]: outcome for outcome in answers["simulate"]["pods"]}
    assert ("share-" in str(placed["m/p"]["node"])) is acts
    decisions = answers["explain"]["pod"]["webhook"]["decisions"]
    assert any(decision["outcome"] in ("translated", "approximated") for decision in decisions) is acts


def test_a_command_prints_its_configuration_unless_it_is_the_default(tmp_path):
    plain = manifest(tmp_path / "plain.json", shared_pod("p", "3000"))
    config = manifest(tmp_path / "config.json", configuration("warn"))
    whole = manifest(tmp_path / "whole.json", shared_pod("p", "3000"), *installed("observe"))
    for command in (("translate", "-o", "report"), ("check",), ("survey",), ("simulate",), ("explain", "pod/p"), ("resize", "pod/p", "nvidia.com/gpu=1"), ("doctor",)):  # fmt: skip
        lines = [
            [line for line in run(*command, *given).stderr.splitlines() if line.startswith("configuration: ")]
            for given in (
                ("-f", plain),
                ("-f", plain, "--config", config),
                ("-f", config, "-f", plain),
                ("-f", whole),
                ("-f", whole, "-q"),
            )
        ]
        assert lines == [
            [],
            [f"configuration: {config}, mode warn"],
            [f"configuration: {config}:1, mode warn"],
            [f"configuration: ConfigMap {SERVICE}/drawbridge, mode observe"],
            [],
        ], command
    assert run("dialects", "--config", config).stderr == f"configuration: {config}, mode warn\n"
    line = run("check", "-f", plain, "--mode", "off").stderr.splitlines()[0]
    assert line == "configuration: defaults, mode off (--mode)"


def test_only_check_and_doctor_continue_with_an_invalid_configuration(tmp_path):
    whole = manifest(tmp_path / "whole.yaml", shared_pod("p", "3000"), *installed("banana"))
    code, answer = run_json("check", "-f", whole)
    [finding] = [finding for finding in answer["findings"] if finding["code"] == "C001"]
    assert (code, finding["object"]) == (1, f"ConfigMap/{SERVICE}/drawbridge")
    assert "drawbridge.yaml: line 3: the text 'banana' is not allowed" in finding["message"]
    assert answer["configuration"] == {"source": "defaults", "mode": "enforce"}
    for command in ("translate", "survey", "simulate", "explain pod/p", "resize pod/p nvidia.com/gpu=1"):
        result = run(*command.split(), "-f", whole)
        assert result.exit_code == 2, command
        assert f"ConfigMap {SERVICE}/drawbridge: drawbridge.yaml: line 3" in result.stderr, command
    # `check` reports no findings about its inventory, so an invalid configuration there is an error.
    plain = manifest(tmp_path / "plain.json", shared_pod("p", "3000"))
    assert run("check", "-f", plain, "--inventory", whole).exit_code == 2
    # `doctor` reports the invalid configuration as a fault of the installation.
    _, answer = run_json("doctor", "-f", whole)
    assert "O002" in {finding["code"] for finding in answer["findings"]}
    for command in ("check", "doctor"):
        [line] = [
            splitline
            for splitline in run(command, "-f", whole).stderr.splitlines()
            if "default configuration" in splitline
        ]
        assert f"ConfigMap {SERVICE}/drawbridge is not valid: drawbridge.yaml: line 3" in line


def test_two_installations_name_no_configuration(tmp_path):
    objects = [
        installed_config_map("off", "a"),
        webhook_deployment("a"),
        installed_config_map("warn", "b"),
        webhook_deployment("b"),
    ]
    result = run("check", "-f", manifest(tmp_path / "both.json", shared_pod("p", "3000"), *objects))
    assert "several installed configurations were read: ConfigMap a/drawbridge and ConfigMap b/drawbridge" in result.stderr  # fmt: skip


class Refusing(Embedded):
    """A cluster that forbids reading ConfigMaps."""

    async def get(self, resource, name, namespace=None):
        if resource.kind == "ConfigMap":
            raise Forbidden("configmaps is forbidden")
        return await super().get(resource, name, namespace)


@pytest.mark.parametrize("command", ["survey", "explain pod/p -n m", "resize pod/p nvidia.com/gpu=1 -n m", "snapshot"])
def test_the_installed_configuration_is_read_from_a_live_cluster(monkeypatch, tmp_path, command):
    objects = [mode_namespace(), *installed("observe"), installed_config_map("off", "m"), shared_pod("p", "3000")]
    objects += [document.object for document in manifests.read([FLEET])]
    saved = tmp_path / "saved.json"
    options = ["--to", saved, "--force"] if command == "snapshot" else []
    clusters = []
    for kind in (Embedded, Refusing):
        cluster = kind()
        cluster.load(objects)
        clusters.append(cluster)
    allowed, forbidden = clusters
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: allowed)
    result = run(*command.split(), *options)
    assert f"configuration: ConfigMap {SERVICE}/drawbridge, mode observe" in result.stderr.splitlines()
    if command == "snapshot":  # a snapshot has the same configuration as the cluster
        _, answer = run_json("survey", "-f", saved)
        assert answer["configuration"] == {"source": f"ConfigMap {SERVICE}/drawbridge", "mode": "observe"}
        assert f"{json.dumps('m')}" in saved.read_text()
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: forbidden)
    result = run(*command.split(), *options)
    [warning] = [line for line in result.stderr.splitlines() if "default configuration" in line]
    assert f"ConfigMap {SERVICE}/drawbridge cannot be read" in warning


def test_an_embedded_server_prefers_the_configuration_option(tmp_path):
    documents = manifests.parse(json.dumps(configuration("off")), "a.yaml")
    config = manifest(tmp_path / "config.json", configuration("warn"))
    for path, source, mode in (("", "a.yaml:1", "off"), (str(config), str(config), "warn")):
        watched, in_force = watched_configuration(path, documents)
        assert (in_force.source, watched.path, watched.current.file.mode) == (source, path, mode)


def test_the_last_configuration_counts_and_defaults_are_named():
    assert configuration_in_force(None).source == "defaults"
    documents = manifests.parse("\n---\n".join(json.dumps(configuration(mode)) for mode in ("off", "warn")), "a.yaml")
    in_force = configuration_in_force(None, documents)
    assert (in_force.source, in_force.configuration.file.mode) == ("a.yaml:3", "warn")
