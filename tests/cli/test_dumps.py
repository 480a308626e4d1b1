"""In a dump, findings about objects that a controller created are reported at the controller, and device plugins are not workloads."""

import pytest

from tests.cli.running import manifest, run, run_json
from tests.objects import container, obj, owner

SPEC = {"containers": [container(limits={"nvidia.com/gpu": 1, "nvidia.com/gpumen": 1})]}


def stored_object(kind, name, spec, owner_name="", version="apps/v1"):
    owners = [owner("Owner", owner_name, "apps/v1", uid=f"uid-{owner_name}")] if owner_name else []
    return obj(kind, name, version, namespace="n", uid=f"uid-{name}", ownerReferences=owners, **spec)


def stored_workload(kind, name, owner_name=""):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
    return stored_object(kind, name, {"selector": {"matchLabels": {"a": "b"}}, "template": template}, owner_name)


DUMP = (
    stored_workload("Deployment", "d"),
    stored_workload("ReplicaSet", "d-1", "d"),
    stored_object("Pod", "d-1-x", SPEC, "d-1", "v1"),
)
PLUGIN_SPEC = {
    "containers": [{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
    "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
}


def test_findings_of_owned_objects_are_reported_at_their_controller(tmp_path):
    file = manifest(tmp_path / "dump.yaml", *DUMP)
    _, answer = run_json("check", "-f", file)
    assert {(finding["code"], finding["object"]) for finding in answer["findings"]} == {("D211", "Deployment/n/d")}
    _, answer = run_json("translate", "-f", file)
    assert {decision["object"] for decision in answer["decisions"]} == {"Deployment/n/d"}
    assert [obj["kind"] for obj in answer["items"]] == ["Deployment", "ReplicaSet", "Pod"], (
        "the output lacks an object of the dump"
    )
    assert "skipped: 2 objects whose controller is in the input" in run("translate", "-f", file).stderr


@pytest.mark.parametrize("missing", ["uid", "owner"])
def test_a_pod_whose_uid_or_owner_is_missing_is_checked(tmp_path, missing):
    pod = stored_object("Pod", "x", SPEC, "d", "v1")
    if missing == "uid":
        del pod["metadata"]["uid"]
    file = manifest(tmp_path / "pod.yaml", *([DUMP[0]] if missing == "uid" else []), pod)
    _, answer = run_json("check", "-f", file)
    assert "Pod/n/x" in {finding["object"] for finding in answer["findings"]}


def test_a_device_plugin_is_a_workload_only_with_a_request(tmp_path):
    plugin = stored_object("DaemonSet", "plugin", {"template": {"spec": PLUGIN_SPEC}})
    requesting_plugin = stored_object("DaemonSet", "asks", {"template": {"spec": {**PLUGIN_SPEC, **SPEC}}})
    file = manifest(tmp_path / "dump.yaml", plugin, requesting_plugin)
    _, answer = run_json("survey", "-f", file)
    assert [workload["name"] for workload in answer["workloads"]] == ["asks"]
    _, answer = run_json("translate", "-f", file)
    assert {decision["object"] for decision in answer["decisions"]} == {"DaemonSet/n/asks"}


def test_a_survey_shows_modes_only_if_drawbridge_is_installed(tmp_path):
    webhook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    plain_file = manifest(tmp_path / "without.yaml", DUMP[0])
    installed_file = manifest(tmp_path / "with.yaml", DUMP[0], {**webhook, "metadata": {"name": "drawbridge"}})
    assert "mode" not in run("survey", "-f", plain_file).stdout
    assert "Workloads of n (mode enforce)" in run("survey", "-f", installed_file).stdout


@pytest.mark.parametrize("uid", [{}, [], 7, None, "other"], ids=repr)
def test_an_invalid_or_unknown_owner_uid_excludes_no_object(tmp_path, uid):
    replica_set = stored_workload("ReplicaSet", "d-1")
    replica_set["metadata"] |= {"ownerReferences": [{"controller": True, "uid": uid}]}
    file = manifest(tmp_path / "dump.yaml", replica_set)
    for command in ("check", "translate"):
        result = run(command, "-f", file)
        assert "skipped" not in result.stderr
        assert "this is a bug" not in result.output
