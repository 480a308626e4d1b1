"""A fleet that is migrated node by node, in `survey`, `doctor`, `translate`, `simulate` and `explain`."""

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.loading import SURVEY, read_cluster
from cluster.embedded import Embedded
from tests.cli.running import manifest, run, run_json
from tests.objects import resource_slice, workload
from tests.webhook.admission.test_decide import applied, review
from tests.webhook.placement.mixed_nodes import (
    CLASS,
    GPU,
    MIXED,
    OLD_NODES_FULL,
    PREFER_PLUGIN,
    gpu_pod,
    new_node,
    old_node,
    plugin_node,
    published,
    state_with,
)
from tests.webhook.pods import configured
from webhook.admission import review as reviewing

MIG_AMOUNTS = {"nvidia.com/mig-1g.5gb": "7", GPU: "0"}
MIG_NODE = plugin_node("cut-up") | {"status": {"allocatable": MIG_AMOUNTS}}
NODE_WITH_PLUGIN_AND_DRIVER = [plugin_node("both-1", 4), published("both-1")]
FLEET = [CLASS, *MIXED, *NODE_WITH_PLUGIN_AND_DRIVER, plugin_node("half-1", 0), MIG_NODE, plugin_node("cpu-1")]
NODES_BY_STATE = {
    "plugin": ["old-1", "old-2", "old-3"],
    "driver": ["new-1"],
    "both": ["both-1"],
    "pluginWithoutDevices": ["half-1"],
    "neither": ["cpu-1", "cut-up"],
}
PREFERRING_PLUGIN = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "mixed": {GPU: PREFER_PLUGIN},
}


def answer_of_survey(tmp_path, *objects):
    _, answer = run_json("survey", "-f", manifest(tmp_path / "dump.yaml", *objects))
    return answer


def test_every_node_is_listed_under_its_state(tmp_path):
    answer = answer_of_survey(tmp_path, *FLEET)
    assert answer["nodesByKey"] == [{"key": GPU} | NODES_BY_STATE]


def test_the_text_counts_nodes_and_names_the_first_five(tmp_path):
    old_nodes = [obj for i in range(12) for obj in old_node(f"n-{i:02}")]
    dump = manifest(tmp_path / "dump.yaml", CLASS, *old_nodes, *new_node("new-1"))
    output = run("survey", "-f", dump).stdout
    rows = [line.split(maxsplit=2) for line in output.splitlines()]
    assert [GPU, "12", "device plugin  n-00, n-01, n-02, n-03, n-04 and 7 more"] in rows
    assert [GPU, "1", "driver         new-1"] in rows
    assert "n-11" not in output
    assert "n-11" in run("survey", "-f", dump, "-o", "wide").stdout


def test_nodes_are_listed_for_an_extended_resource_of_no_dialect(tmp_path):
    """The resource is the extendedResourceName of a class."""
    class_with_resource = {**CLASS, "spec": CLASS["spec"] | {"extendedResourceName": "example.com/resource"}}
    node_with_plugin = plugin_node("a") | {"status": {"allocatable": {"example.com/resource": "2"}}}
    answer = answer_of_survey(tmp_path, class_with_resource, node_with_plugin, plugin_node("b"), published("b"))
    [nodes] = [entry for entry in answer["nodesByKey"] if entry["key"] == "example.com/resource"]
    assert (nodes["plugin"], nodes["driver"]) == (["a"], ["b"])


def test_a_resource_without_a_class_is_not_listed_for_migration(tmp_path):
    node = plugin_node("a") | {"status": {"allocatable": {"example.com/odd": "2", "hugepages-2Mi": "0", "cpu": "4"}}}
    answer = answer_of_survey(tmp_path, CLASS, node, *new_node("b"))
    assert [entry["key"] for entry in answer["nodesByKey"]] == [GPU]


def test_doctor_reports_half_migrated_nodes_of_a_dump(tmp_path):
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, gpu_pod("p")))
    assert code == 1
    by_code = {finding["code"]: finding for finding in answer["findings"]}
    assert {finding_code: finding["object"] for finding_code, finding in by_code.items()} == {
        "O202": "Node/both-1",
        "O203": "Node/half-1",
    }
    assert GPU in by_code["O202"]["message"]
    assert all("docs/node-by-node.md" in finding["remedy"] for finding in by_code.values())
    repaired_dump = manifest(tmp_path / "repaired.yaml", CLASS, *MIXED, MIG_NODE, gpu_pod("p"))
    defaults = {"source": "defaults", "mode": "enforce"}
    code, answer = run_json("doctor", "-f", repaired_dump)
    assert (code, answer["configuration"], answer["findings"]) == (0, defaults, [])


@pytest.mark.parametrize(
    ("allocatable", "driver", "reported"),
    [
        ({}, "", True),
        ({}, "dra.net", True),
        ({}, "gpu.nvidia.com", False),
        ({}, "gpu.example.com", False),
        ({GPU: "0"}, "", True),
        ({GPU: "0", "nvidia.com/mig-1g.10gb": "7"}, "", False),
        ({GPU: "8"}, "", False),
    ],
)
def test_a_node_whose_gpus_nothing_serves_is_reported(allocatable, driver, reported, tmp_path):
    """Discovery has labelled the node; the driver's pod does not run there, or publishes nothing."""
    labels = {"kubernetes.io/hostname": "dark", "nvidia.com/gpu.present": "true"}
    dark = plugin_node("dark") | {
        "metadata": {"name": "dark", "labels": labels},
        "status": {"allocatable": allocatable},
    }
    slices = [resource_slice("dark", "d", driver=driver, pool="dark", nodeName="dark")] if driver else []
    dump = manifest(tmp_path / "dump.yaml", CLASS, *new_node("b"), dark, *slices)
    findings = run_json("doctor", "-f", dump)[1]["findings"]
    assert [(finding["code"], finding["object"]) for finding in findings] == [("O203", "Node/dark")] * reported
    obstacles = run_json("survey", "-f", dump)[1]["obstacles"]
    assert [found["object"] for found in obstacles if found["code"] == "O203"] == ["Node/dark"] * reported


def daemon_set(desired, ready, *folders):
    volumes = [{"name": f"v{number}", "hostPath": {"path": folder}} for number, folder in enumerate(folders)]
    status = {"desiredNumberScheduled": desired, "numberReady": ready}
    return workload("DaemonSet", "driver", {"volumes": volumes}, namespace="gpu", status=status)


DRIVER_FOLDERS = ("/var/lib/kubelet/plugins_registry", "/var/run/cdi")


@pytest.mark.parametrize(
    ("obj", "reported"),
    [
        (daemon_set(20, 17, *DRIVER_FOLDERS), True),
        (daemon_set(20, 17, "/var/lib/kubelet/device-plugins"), True),
        (daemon_set(20, 20, *DRIVER_FOLDERS), False),
        (daemon_set(20, 17, "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins/csi"), False),
    ],
    ids=("driver", "device plugin", "ready", "storage"),
)
def test_doctor_and_survey_report_a_driver_that_is_not_ready_on_its_nodes(obj, reported, tmp_path):
    dump = manifest(tmp_path / "dump.yaml", CLASS, *new_node("b"), obj)
    answers = run_json("doctor", "-f", dump)[1]["findings"], run_json("survey", "-f", dump)[1]["obstacles"]
    for findings in answers:
        found = [finding for finding in findings if finding["code"] == "O203"]
        assert [finding["object"] for finding in found] == ["DaemonSet/gpu/driver"] * reported
        assert all("20 nodes, and is ready on 17" in finding["message"] for finding in found)


@pytest.mark.parametrize(("full_nodes", "outcome"), [((), "left"), (OLD_NODES_FULL, "translated")])
def test_translate_leaves_a_pod_unless_plugin_nodes_are_full(tmp_path, full_nodes, outcome):
    config = manifest(tmp_path / "config.yaml", PREFERRING_PLUGIN)
    pod_file = manifest(tmp_path / "pod.yaml", gpu_pod())
    idle_pod = gpu_pod("idle", 1, nodeName="new-1")  # without a bound pod, it is unknown which devices are in use
    fleet_file = manifest(tmp_path / "fleet.yaml", CLASS, *MIXED, *full_nodes, idle_pod)
    output = run("translate", "-f", pod_file, "--inventory", fleet_file, "--config", config, "-o", "report").stdout
    assert outcome in output
    assert "nodes with a device plugin are preferred" in output
    assert ("node new-1, with a driver, has enough" in output) is bool(full_nodes)
    code, answer = run_json("check", "-f", pod_file, "--inventory", fleet_file, "--config", config)
    assert code == 0, answer


@pytest.mark.parametrize(("full_nodes", "expected_node"), [((), "old-1"), (OLD_NODES_FULL, "new-1")])
def test_simulate_uses_driver_nodes_only_if_plugin_nodes_are_full(tmp_path, full_nodes, expected_node):
    config = manifest(tmp_path / "config.yaml", PREFERRING_PLUGIN)
    running_pods = [
        obj | {"status": {"phase": "Running"}} for obj in (*full_nodes, gpu_pod("idle", 1, nodeName="elsewhere"))
    ]
    snapshot = manifest(tmp_path / "snapshot.yaml", CLASS, *MIXED, *running_pods, gpu_pod("comes"))
    code, answer = run_json("simulate", "-f", snapshot, "--config", config)
    assert code == 0, answer
    [outcome] = [pod for pod in answer["pods"] if pod["pod"].endswith("/comes")]
    assert outcome["node"] == expected_node
    assert bool(outcome["devices"]) is bool(full_nodes)


async def test_a_survey_of_one_namespace_does_not_count_plugin_usage():
    cluster = Embedded.holding(
        [CLASS, *MIXED, *OLD_NODES_FULL, gpu_pod("idle", 1, nodeName="new-1", namespace="other")]
    )

    async def usage_in(namespace):
        in_force = ConfigurationInForce(configured(mixed={GPU: PREFER_PLUGIN}))
        reading = await read_cluster(cluster, SURVEY, given=in_force, namespace=namespace)
        return reading.state.uses

    usage = await usage_in("")
    assert usage["old-1"][GPU] == 4 * 10**9  # four GPUs, in billionths
    assert await usage_in("other") is None


def test_a_translated_pod_that_needs_plugin_nodes_is_reported(tmp_path):
    """The node of the pod had a driver when the webhook translated the pod, and has a device plugin now. A new pod would be left, and could run there."""
    in_pool_a, in_pool_b = {"labels": {"pool": "a"}}, {"labels": {"pool": "b"}}
    original_pod = gpu_pod("waits", nodeSelector={"pool": "a"})
    earlier_state = state_with(*new_node("one", **in_pool_a), *new_node("two", **in_pool_b))
    translated = applied(original_pod, reviewing.decide_review("mutate", review(original_pod), earlier_state))
    dump = manifest(
        tmp_path / "dump.yaml", CLASS, *old_node("one", **in_pool_a), *new_node("two", **in_pool_b), translated
    )
    output = run("explain", "pod", "ns/waits", "-f", dump).stdout
    assert "the webhook would not change such a pod: 0 of 1 nodes" in output
