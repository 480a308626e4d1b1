"""In a dump, findings about created objects are reported at their owner, and device plugins are not workloads."""

import pytest

from tests.cli.running import manifest, run, run_json

LIMITS = {"resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumen": 1}}}
SPEC = {"containers": [{"name": "main", "image": "i", **LIMITS}]}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}


def stored(kind, name, spec, maker=None, version="apps/v1"):
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}"}
    if maker:
        owner = {"apiVersion": "apps/v1", "kind": "Owner", "name": maker, "uid": f"uid-{maker}", "controller": True}
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def made(kind, name, maker=None):
    return stored(kind, name, {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}, maker)


DUMP = (made("Deployment", "d"), made("ReplicaSet", "d-1", "d"), stored("Pod", "d-1-x", SPEC, "d-1", "v1"))
PLUGIN = {
    "containers": [{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
    "volumes": [{"name": "v", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
}


def test_findings_of_owned_objects_are_reported_at_their_controller(tmp_path):
    file = manifest(tmp_path / "dump.yaml", *DUMP)
    _, answer = run_json("check", "-f", file)
    assert {(finding["code"], finding["object"]) for finding in answer["findings"]} == {("D211", "Deployment/n/d")}
    _, answer = run_json("translate", "-f", file)
    assert {decision["object"] for decision in answer["decisions"]} == {"Deployment/n/d"}
    assert [obj["kind"] for obj in answer["items"]] == ["Deployment", "ReplicaSet", "Pod"], "all of it passes through"
    assert "skipped: 2 objects whose controller is in the input" in run("translate", "-f", file).stderr


@pytest.mark.parametrize("lacks", ["uid", "maker"])
def test_a_pod_without_uid_or_owner_is_checked(tmp_path, lacks):
    claims_to_be = stored("Pod", "x", SPEC, "d", "v1")
    if lacks == "uid":
        del claims_to_be["metadata"]["uid"]
    file = manifest(tmp_path / "pod.yaml", *([DUMP[0]] if lacks == "uid" else []), claims_to_be)
    _, answer = run_json("check", "-f", file)
    assert "Pod/n/x" in {finding["object"] for finding in answer["findings"]}


def test_a_device_plugin_is_a_workload_only_with_a_request(tmp_path):
    plugin = stored("DaemonSet", "plugin", {"template": {"spec": PLUGIN}})
    asks = stored("DaemonSet", "asks", {"template": {"spec": {**PLUGIN, **SPEC}}})
    file = manifest(tmp_path / "dump.yaml", plugin, asks)
    _, answer = run_json("survey", "-f", file)
    assert [workload["name"] for workload in answer["workloads"]] == ["asks"]
    _, answer = run_json("translate", "-f", file)
    assert {decision["object"] for decision in answer["decisions"]} == {"DaemonSet/n/asks"}


def test_modes_are_shown_only_where_drawbridge_is_installed(tmp_path):
    webhook = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    without = manifest(tmp_path / "without.yaml", DUMP[0])
    installed = manifest(tmp_path / "with.yaml", DUMP[0], {**webhook, "metadata": {"name": "drawbridge"}})
    assert "mode" not in run("survey", "-f", without).stdout
    assert "Workloads of n (mode enforce)" in run("survey", "-f", installed).stdout


@pytest.mark.parametrize("uid", [{}, [], 7, None, "other"], ids=repr)
def test_an_owner_with_an_invalid_uid_skips_no_object(tmp_path, uid):
    obj = made("ReplicaSet", "d-1")
    obj["metadata"] |= {"ownerReferences": [{"controller": True, "uid": uid}]}
    file = manifest(tmp_path / "dump.yaml", obj)
    for command in ("check", "translate"):
        result = run(command, "-f", file)
        assert "skipped" not in result.stderr
        assert "this is a bug" not in result.output
