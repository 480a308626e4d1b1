"""A fleet that is migrated node by node, in `survey`, `doctor`, `translate`, `simulate` and `explain`."""

from datetime import UTC, datetime

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.doctor import diagnose, survey
from analysis.loading import SURVEY, read_cluster, state_of
from cluster.embedded import Embedded
from tests.cli.running import manifest, run, run_json
from tests.webhook.admission.test_decide import applied, review
from tests.webhook.mixed_fleet.mixed_nodes import (
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

MIG = {"nvidia.com/mig-1g.5gb": "7", GPU: "0"}
CUT_UP = plugin_node("cut-up") | {"status": {"allocatable": MIG}}
BOTH = [plugin_node("both-1", 4), published("both-1")]
FLEET = [CLASS, *MIXED, *BOTH, plugin_node("half-1", 0), CUT_UP, plugin_node("cpu-1")]
STANDING = {
    "plugin": ["old-1", "old-2", "old-3"],
    "driver": ["new-1"],
    "both": ["both-1"],
    "pluginWithoutDevices": ["half-1"],
    "neither": ["cpu-1", "cut-up"],
}


def surveyed(tmp_path, *objects, options=()):
    code, answer = run_json("survey", "-f", manifest(tmp_path / "dump.yaml", *objects), *options)
    return code, answer


def test_every_node_has_a_state_for_each_key(tmp_path):
    _, answer = surveyed(tmp_path, *FLEET)
    assert answer["nodesByKey"] == [{"key": GPU} | STANDING]


def test_text_counts_the_nodes_and_names_some(tmp_path):
    many = [obj for i in range(12) for obj in old_node(f"n-{i:02}")]
    dump = manifest(tmp_path / "dump.yaml", CLASS, *many, *new_node("new-1"))
    output = run("survey", "-f", dump).stdout
    rows = [line.split(maxsplit=2) for line in output.splitlines()]
    assert [GPU, "12", "device plugin  n-00, n-01, n-02, n-03, n-04 and 7 more"] in rows
    assert [GPU, "1", "driver         new-1"] in rows
    assert "n-11" not in output
    assert "n-11" in run("survey", "-f", dump, "-o", "wide").stdout


def test_a_classs_extended_resource_name_is_tracked_without_a_dialect(tmp_path):
    """The resource is the extendedResourceName of a class."""
    carrying = {**CLASS, "spec": CLASS["spec"] | {"extendedResourceName": "example.com/resource"}}
    node_of_plugin = plugin_node("a") | {"status": {"allocatable": {"example.com/resource": "2"}}}
    _, answer = surveyed(tmp_path, carrying, node_of_plugin, plugin_node("b"), published("b"))
    [side] = [entry for entry in answer["nodesByKey"] if entry["key"] == "example.com/resource"]
    assert (side["plugin"], side["driver"]) == (["a"], ["b"])


def test_a_resource_without_a_class_is_not_listed_for_migration(tmp_path):
    odd = plugin_node("a") | {"status": {"allocatable": {"example.com/odd": "2", "hugepages-2Mi": "0", "cpu": "4"}}}
    _, answer = surveyed(tmp_path, CLASS, odd, *new_node("b"))
    assert [entry["key"] for entry in answer["nodesByKey"]] == [GPU]


def test_doctor_reports_nodes_with_both_plugin_and_driver(tmp_path):
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, gpu_pod("p")))
    assert code == 1
    by_code = {finding["code"]: finding for finding in answer["findings"]}
    assert {finding_code: finding["object"] for finding_code, finding in by_code.items()} == {
        "O202": "Node/both-1",
        "O203": "Node/half-1",
    }
    assert GPU in by_code["O202"]["message"]
    assert all("docs/migrate.md" in finding["remedy"] for finding in by_code.values())
    repaired = manifest(tmp_path / "repaired.yaml", CLASS, *MIXED, CUT_UP, gpu_pod("p"))
    defaults = {"source": "defaults", "mode": "enforce"}
    code, answer = run_json("doctor", "-f", repaired)
    assert (code, answer["configuration"], answer["findings"]) == (0, defaults, [])


async def test_doctor_reports_the_same_nodes_of_a_live_cluster():
    findings = diagnose(await survey(Embedded.holding(FLEET), datetime.now(UTC)))
    assert [(finding.code, finding.object) for finding in findings] == [
        ("O202", "Node/both-1"),
        ("O203", "Node/half-1"),
    ]


@pytest.mark.parametrize(("full", "outcome"), [((), "left"), (OLD_NODES_FULL, "translated")])
def test_translate_reports_the_outcome_and_the_reason(tmp_path, full, outcome):
    configuration = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DrawbridgeConfiguration",
        "mixed": {GPU: PREFER_PLUGIN},
    }
    config = manifest(tmp_path / "config.yaml", configuration)
    pod_file = manifest(tmp_path / "pod.yaml", gpu_pod())
    idle = gpu_pod("idle", 1, nodeName="new-1")  # without a bound pod, it is unknown which devices are in use
    fleet_file = manifest(tmp_path / "fleet.yaml", CLASS, *MIXED, *full, idle)
    output = run("translate", "-f", pod_file, "--inventory", fleet_file, "--config", config, "-o", "report").stdout
    assert outcome in output
    assert "nodes with a device plugin are preferred" in output
    assert ("node new-1, with a driver, has enough" in output) is bool(full)
    code, answer = run_json("check", "-f", pod_file, "--inventory", fleet_file, "--config", config)
    assert code == 0, answer


@pytest.mark.parametrize(("full", "where"), [((), "old-1"), (OLD_NODES_FULL, "new-1")])
def test_simulate_places_pods_on_the_side_the_webhook_chooses(tmp_path, full, where):
    configuration = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DrawbridgeConfiguration",
        "mixed": {GPU: PREFER_PLUGIN},
    }
    config = manifest(tmp_path / "config.yaml", configuration)
    running = [obj | {"status": {"phase": "Running"}} for obj in (*full, gpu_pod("idle", 1, on="elsewhere"))]
    snapshot = manifest(tmp_path / "snapshot.yaml", CLASS, *MIXED, *running, gpu_pod("comes"))
    code, answer = run_json("simulate", "-f", snapshot, "--config", config)
    assert code == 0, answer
    [placed] = [pod for pod in answer["pods"] if pod["pod"].endswith("/comes")]
    assert placed["node"] == where
    assert bool(placed["devices"]) is bool(full)


@pytest.mark.parametrize(("full", "outcome"), [((), "left"), (OLD_NODES_FULL, "translated")])
def test_explain_shows_the_webhooks_decision_for_a_waiting_pod(tmp_path, full, outcome):
    configuration = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DrawbridgeConfiguration",
        "mixed": {GPU: PREFER_PLUGIN},
    }
    config = manifest(tmp_path / "config.yaml", configuration)
    dump = manifest(
        tmp_path / "dump.yaml", CLASS, *MIXED, *full, gpu_pod("idle", 1, nodeName="new-1"), gpu_pod("waits")
    )
    _, answer = run_json("explain", "pod", "ns/waits", "-f", dump, "--config", config)
    assert [decision["outcome"] for decision in answer["pod"]["webhook"]["decisions"]] == [outcome]


async def test_a_survey_of_one_namespace_does_not_count_plugin_usage():
    cluster = Embedded.holding(
        [CLASS, *MIXED, *OLD_NODES_FULL, gpu_pod("idle", 1, nodeName="new-1", namespace="other")]
    )

    async def counted(namespace):
        in_force = ConfigurationInForce(configured(mixed={GPU: PREFER_PLUGIN}))
        reading = await read_cluster(cluster, SURVEY, given=in_force, namespace=namespace)
        return state_of(reading, reading.configuration).uses

    everywhere = await counted("")
    assert everywhere["old-1"][GPU] == 4 * 10**9
    assert await counted("other") is None


def test_a_translated_pod_that_needs_plugin_nodes_is_reported(tmp_path):
    """The node of the pod had a driver when the webhook translated the pod, and has a device plugin now. A new pod would be left, and could run there."""
    stays, goes = {"labels": {"pool": "a"}}, {"labels": {"pool": "b"}}
    asked = gpu_pod("waits", nodeSelector={"pool": "a"})
    moved = state_with(*new_node("one", **stays), *new_node("two", **goes))
    translated = applied(asked, reviewing.decide_review("mutate", review(asked), moved))
    dump = manifest(tmp_path / "dump.yaml", CLASS, *old_node("one", **stays), *new_node("two", **goes), translated)
    output = run("explain", "pod", "ns/waits", "-f", dump).stdout
    assert "the webhook would not change such a pod: 0 of 1 nodes that the pod can run on serve claims" in output
