"""A fleet that moves node by node, as `survey`, `doctor` and `translate` tell it: which node stands where, by number and by name."""

from datetime import UTC, datetime

import pytest

from analysis.configuration import ConfigurationInForce
from analysis.doctor import diagnose, survey
from analysis.loading import SURVEY, read_cluster, state_of
from cluster.embedded import Embedded
from tests.cli.running import manifest, run, run_json
from tests.webhook.admission.test_decide import applied, review
from tests.webhook.mixed_fleet.test_choice import (
    CLASS,
    GPU,
    MIXED,
    OLD_FULL,
    PLUGIN,
    fleet,
    gpu_pod,
    new,
    old,
    plugin_node,
    published,
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
    "halfway": ["half-1"],
    "neither": ["cpu-1", "cut-up"],
}


def surveyed(tmp_path, *objects, options=()):
    code, answer = run_json("survey", "-f", manifest(tmp_path / "dump.yaml", *objects), *options)
    return code, answer


def test_every_node_stands_somewhere_for_a_name(tmp_path):
    _, answer = surveyed(tmp_path, *FLEET)
    assert answer["servedBy"] == [{"key": GPU} | STANDING]


def test_on_a_screen_they_are_counted_and_some_are_named(tmp_path):
    many = [obj for i in range(12) for obj in old(f"n-{i:02}")]
    dump = manifest(tmp_path / "dump.yaml", CLASS, *many, *new("new-1"))
    output = run("survey", "-f", dump).stdout
    rows = [line.split(maxsplit=2) for line in output.splitlines()]
    assert [GPU, "12", "hand it out  n-00, n-01, n-02, n-03, n-04 and 7 more"] in rows
    assert [GPU, "1", "publish it   new-1"] in rows
    assert "n-11" not in output
    assert "n-11" in run("survey", "-f", dump, "-o", "wide").stdout


def test_a_name_that_a_class_carries_is_followed_without_a_dialect(tmp_path):
    """Any plugin behind the adapter: no dialect has its name, and a class says what stands for it."""
    carrying = {**CLASS, "spec": CLASS["spec"] | {"extendedResourceName": "example.com/resource"}}
    there = plugin_node("a") | {"status": {"allocatable": {"example.com/resource": "2"}}}
    _, answer = surveyed(tmp_path, carrying, there, plugin_node("b"), published("b"))
    [side] = [entry for entry in answer["servedBy"] if entry["key"] == "example.com/resource"]
    assert (side["plugin"], side["driver"]) == (["a"], ["b"])


def test_a_resource_that_no_class_stands_for_is_not_listed_for_migration(tmp_path):
    odd = plugin_node("a") | {"status": {"allocatable": {"example.com/odd": "2", "hugepages-2Mi": "0", "cpu": "4"}}}
    _, answer = surveyed(tmp_path, CLASS, odd, *new("b"))
    assert [entry["key"] for entry in answer["servedBy"]] == [GPU]


def test_the_doctor_names_nodes_on_which_one_device_could_be_given_twice_and_those_half_way(tmp_path):
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, gpu_pod("p")))
    assert code == 1
    by_code = {finding["code"]: finding for finding in answer["findings"]}
    assert {what: finding["object"] for what, finding in by_code.items()} == {
        "O202": "Node/both-1",
        "O203": "Node/half-1",
    }
    assert GPU in by_code["O202"]["message"]
    assert all("docs/migrate.md" in finding["remedy"] for finding in by_code.values())
    repaired = manifest(tmp_path / "repaired.yaml", CLASS, *MIXED, CUT_UP, gpu_pod("p"))
    defaults = {"source": "defaults", "mode": "enforce"}
    code, answer = run_json("doctor", "-f", repaired)
    assert (code, answer["configuration"], answer["findings"]) == (0, defaults, [])


async def test_the_doctor_sees_the_same_in_a_live_cluster():
    ills = diagnose(await survey(Embedded.holding(FLEET), datetime.now(UTC)))
    assert [(ill.code, ill.object) for ill in ills] == [("O202", "Node/both-1"), ("O203", "Node/half-1")]


@pytest.mark.parametrize(("full", "side"), [((), "left"), (OLD_FULL, "translated")])
def test_translate_says_which_side_and_why(tmp_path, full, side):
    configuration = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mixed": {GPU: PLUGIN}}
    config = manifest(tmp_path / "config.yaml", configuration)
    asked = manifest(tmp_path / "pod.yaml", gpu_pod())
    idle = gpu_pod("idle", 1, on="new-1")  # so that a pod is known to be on nodes
    fleet = manifest(tmp_path / "fleet.yaml", CLASS, *MIXED, *full, idle)
    output = run("translate", "-f", asked, "--inventory", fleet, "--config", config, "-o", "report").stdout
    assert side in output
    assert "nodes with a device plugin are preferred" in output
    assert ("node new-1, with a driver, has a free one" in output) is bool(full)
    code, answer = run_json("check", "-f", asked, "--inventory", fleet, "--config", config)
    assert code == 0, answer


@pytest.mark.parametrize(("full", "where"), [((), "old-1"), (OLD_FULL, "new-1")])
def test_a_simulation_places_each_pod_on_the_nodes_to_which_the_webhook_sends_it(tmp_path, full, where):
    configuration = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mixed": {GPU: PLUGIN}}
    config = manifest(tmp_path / "config.yaml", configuration)
    running = [obj | {"status": {"phase": "Running"}} for obj in (*full, gpu_pod("idle", 1, on="elsewhere"))]
    snapshot = manifest(tmp_path / "snapshot.yaml", CLASS, *MIXED, *running, gpu_pod("comes"))
    code, answer = run_json("simulate", "-f", snapshot, "--config", config)
    assert code == 0, answer
    [placed] = [pod for pod in answer["pods"] if pod["pod"].endswith("/comes")]
    assert placed["node"] == where
    assert bool(placed["devices"]) is bool(full)


@pytest.mark.parametrize(("full", "side"), [((), "left"), (OLD_FULL, "translated")])
def test_an_explanation_of_a_pod_that_waits_says_what_the_webhook_would_do(tmp_path, full, side):
    configuration = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "mixed": {GPU: PLUGIN}}
    config = manifest(tmp_path / "config.yaml", configuration)
    dump = manifest(tmp_path / "dump.yaml", CLASS, *MIXED, *full, gpu_pod("idle", 1, on="new-1"), gpu_pod("waits"))
    _, answer = run_json("explain", "pod", "ns/waits", "-f", dump, "--config", config)
    assert [decision["outcome"] for decision in answer["pod"]["webhook"]["decisions"]] == [side]


async def test_a_look_at_one_namespace_does_not_take_the_pods_of_others_for_absent():
    cluster = Embedded.holding([CLASS, *MIXED, *OLD_FULL, gpu_pod("idle", 1, on="new-1", namespace="other")])

    async def counted(namespace):
        in_force = ConfigurationInForce(configured(mixed={GPU: PLUGIN}))
        reading = await read_cluster(cluster, SURVEY, given=in_force, namespace=namespace)
        return state_of(reading, reading.configuration).uses

    everywhere = await counted("")
    assert everywhere["old-1"][GPU] == 4 * 10**9
    assert await counted("other") is None


def test_a_translated_pod_that_only_a_plugin_s_nodes_can_run_is_told_so(tmp_path):
    """Its node went back to the plugin, or it was translated before its pins counted: created again it would run."""
    stays, goes = {"labels": {"pool": "a"}}, {"labels": {"pool": "b"}}
    asked = gpu_pod("waits", nodeSelector={"pool": "a"})
    moved = fleet(*new("one", **stays), *new("two", **goes))
    translated = applied(asked, reviewing.mutate(review(asked), moved))
    dump = manifest(tmp_path / "dump.yaml", CLASS, *old("one", **stays), *new("two", **goes), translated)
    output = run("explain", "pod", "ns/waits", "-f", dump).stdout
    assert "created again it would be left: 0 of 1 nodes that the pod can run on serve claims" in output
