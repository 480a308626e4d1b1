"""`drawbridge snapshot` writes a complete file or none, and commands give the same answers about the file as about the cluster."""

import json
import stat

import pytest

from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from cluster.protocol import ListPage
from tests.cli.commands.secret_pod import SECRET, pod_with
from tests.cli.forbidden import forbidding
from tests.cli.running import run, run_json
from tests.corpus.move.autoscaled import pool, scaler
from tests.corpus.move.plugins import CHART, config_map, daemon_set, device_config, policy, sharing
from tests.objects import obj, owner
from tests.webhook.service.test_evidence import NAMESPACE, ClusterWithPlugins


@pytest.fixture
def serve_cluster(monkeypatch, tmp_path):
    """A function that serves a cluster with these objects, and returns a path for the snapshot."""

    def serve(*objects, cluster=Embedded):
        monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster.holding(objects))
        return tmp_path / "snapshot.json"

    return serve


def snapshot_items(file):
    """The objects in a snapshot, without the namespaces that every cluster has."""
    items = json.loads(file.read_text())["items"]
    return [item for item in items if item["kind"] != "Namespace"]


def test_a_written_snapshot_is_surveyed_like_the_live_cluster(serve_cluster):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    file = serve_cluster(node, pod_with("a"), pod_with("b", env=[{"name": "TOKEN", "value": SECRET}]))
    live = run_json("survey")
    assert run("snapshot", "--to", file).exit_code == 0
    replayed = run_json("survey", "-f", file)
    workloads = [[(workload["name"], workload["outcome"], [key["detail"] for key in workload["keys"]]) for workload in answer["workloads"]]
            for _, answer in (live, replayed)]  # fmt: skip
    assert workloads[0] == workloads[1]
    assert len(workloads[0]) == 2


def test_the_answer_counts_objects_bytes_and_redacted_values(serve_cluster):
    file = serve_cluster(pod_with(args=["--password", SECRET], env=[{"name": "A", "value": SECRET}]))
    code, answer = run_json("snapshot", "--to", file)
    assert code == 0
    object_count = len(json.loads(file.read_text())["items"])
    assert (answer["objects"], answer["unread"]) == (object_count, [])
    assert answer["redactedValues"] >= 3  # two arguments and the value of a variable
    assert answer["bytes"] == file.stat().st_size
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"{object_count} objects " in run("snapshot", "--to", file, "--force").stdout


@pytest.mark.parametrize("target_kind", ["existing file", "folder", "file in a missing folder", "stdout"])
def test_an_invalid_target_is_refused_before_the_cluster_is_read(target_kind, tmp_path, monkeypatch):
    existing_file = tmp_path / "existing"
    existing_file.write_text("older")
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: pytest.fail("the cluster was read"))
    target = {
        "existing file": existing_file,
        "folder": tmp_path,
        "file in a missing folder": tmp_path / "missing" / "x",
        "stdout": "-",
    }[target_kind]
    result = run("snapshot", "--to", target)
    assert result.exit_code == 2
    assert "error: " in result.stderr
    assert existing_file.read_text() == "older"


def test_the_force_option_replaces_an_older_file(serve_cluster):
    file = serve_cluster(pod_with())
    file.write_text("older")
    assert run("snapshot", "--to", file, "--force").exit_code == 0
    assert len(snapshot_items(file)) == 1


def test_an_interrupted_snapshot_keeps_the_older_file(serve_cluster):
    class InterruptedCluster(Embedded):
        async def list(self, resource, namespace=None, **options):
            if resource.plural == "pods":
                raise ConnectionError("gone")
            return await super().list(resource, namespace, **options)

    file = serve_cluster(pod_with(), cluster=InterruptedCluster)
    file.write_text("older")
    assert run("snapshot", "--to", file, "--force").exit_code != 0
    assert [(path.name, path.read_text()) for path in file.parent.iterdir()] == [(file.name, "older")]


def test_a_full_disk_is_reported_and_leaves_no_file(serve_cluster, monkeypatch):
    file = serve_cluster(pod_with())

    def raise_disk_full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cli.saved.os.fsync", raise_disk_full)
    result = run("snapshot", "--to", file)
    assert result.exit_code == 3
    assert "No space left on device" in result.stderr
    assert list(file.parent.iterdir()) == []


def test_an_unreadable_resource_is_named_and_the_rest_is_written(serve_cluster):
    file = serve_cluster(pod_with(), cluster=forbidding("Lease"))
    result = run("snapshot", "--to", file)
    assert result.exit_code == 3
    assert "warning: not read: leases.coordination.k8s.io: " in result.stderr
    assert len(snapshot_items(file)) == 1


def test_only_the_given_namespace_is_written(serve_cluster):
    other_pod = pod_with("other")
    other_pod["metadata"]["namespace"] = "team-b"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    file = serve_cluster(pod_with(), other_pod, node)
    run("snapshot", "--to", file, "-n", "team-b")
    assert {(obj["kind"], obj["metadata"]["name"]) for obj in snapshot_items(file)} == {("Pod", "other"), ("Node", "n")}


def test_only_variables_that_a_dialect_reads_keep_their_value(serve_cluster):
    known_variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    file = serve_cluster(pod_with(env=[known_variable, {"name": "B", "value": SECRET}]))
    run("snapshot", "--to", file)
    [item] = snapshot_items(file)
    assert item["spec"]["containers"][0]["env"] == [known_variable, {"name": "B"}]


def test_device_plugins_and_autoscalers_keep_the_fields_that_survey_reads(monkeypatch, tmp_path):
    cluster = ClusterWithPlugins()
    secret_variable = {"name": "TOKEN", "value": SECRET}
    autoscaler = scaler("1.31.0", f"--token={SECRET}") | {"metadata": {"name": "scaler", "namespace": NAMESPACE}}
    autoscaler["spec"]["template"]["spec"]["containers"][0]["env"] = [secret_variable]
    cluster.objects = [pool(), policy(), config_map(any=sharing(), other=SECRET), CHART, autoscaler]
    # Objects of a tenant that look like a plugin's configuration and an autoscaler.
    cluster.objects += [
        obj | {"metadata": {"name": "fake", "namespace": "team-a"}} for obj in (autoscaler, config_map(any=sharing(8)))
    ]
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    file = tmp_path / "snapshot.json"
    assert run("snapshot", "--to", file).exit_code == 0
    assert SECRET not in file.read_text()
    _, live = run_json("survey")
    _, replayed = run_json("survey", "-f", file)
    obstacles = [
        {(finding["object"], finding["message"]) for finding in answer["obstacles"]} for answer in (live, replayed)
    ]
    live_obstacles = {obstacle for obstacle in obstacles[0] if obstacle[0] != "DrawbridgeConfiguration"}
    assert live_obstacles <= obstacles[1]
    assert {name.partition(" (")[0] for name, _ in live_obstacles} >= {
        f"ConfigMap/{NAMESPACE}/plugin",
        f"Deployment/{NAMESPACE}/scaler",
        "Karpenter",
    }
    assert not any("fake" in name for name, _ in obstacles[0] | obstacles[1])


def test_a_snapshot_reports_an_operator_and_its_plugin_once(serve_cluster):
    config = device_config(driver=True)
    plugin = daemon_set("rocm/k8s-device-plugin", "default-device-plugin")
    plugin["metadata"]["ownerReferences"] = [owner("DeviceConfig", "default", "amd.com/v1alpha1")]
    plugin_volume = {"name": "kubelet", "hostPath": {"path": f"/var/lib/kubelet/device-plugins/{SECRET}"}}
    plugin["spec"]["template"]["spec"]["volumes"] = [
        plugin_volume,
        {"name": SECRET, "hostPath": {"path": f"/{SECRET}"}},
    ]
    names = {"kind": "DeviceConfig", "plural": "deviceconfigs"}
    versions = [{"name": "v1alpha1", "served": True, "storage": True}]
    crd = obj("CustomResourceDefinition", "deviceconfigs.amd.com", "apiextensions.k8s.io/v1", group="amd.com", names=names, scope="Namespaced", versions=versions)  # fmt: skip

    class WithOperator(Embedded):
        async def list(self, resource, namespace=None, **options):
            if resource.plural == "deviceconfigs":
                return ListPage((config,), "1")
            return await super().list(resource, namespace, **options)

    file = serve_cluster(plugin, crd, cluster=WithOperator)
    live = run_json("survey")[1]["obstacles"]
    assert run("snapshot", "--to", file).exit_code == 0
    assert [obj["kind"] for obj in snapshot_items(file)].count("DeviceConfig") == 1
    assert SECRET not in file.read_text()
    replayed = run_json("survey", "-f", file)[1]["obstacles"]
    assert live == replayed
    reported_objects = [finding["object"] for finding in live if finding["code"] != "S010"]
    assert reported_objects == ["DaemonSet/gpu-operator/default-device-plugin", "DeviceConfig/kube-amd-gpu/default"]
