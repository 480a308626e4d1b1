"""`drawbridge check` of objects against a fleet: which claims and pods the nodes can serve."""

import json

import pytest

from cluster import manifests
from tests.cli.commands.checks import INVALID_CLAIM, VALID_CLASS, check
from tests.cli.commands.translations import TAINTED_FLEET
from tests.cli.explain import scenes
from tests.cli.running import manifest, run, run_json
from tests.corpus.move import migrated_fleet, node, requesting_pod
from tests.objects import obj, workload

# A slice with two devices; the names of the slice, of its node and of its pool are filled in.
SLICE_OF_NODE = """apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: %s}
spec:
  driver: gpu.example.com
  nodeName: %s
  pool: {name: %s, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}, {name: b}]
---
"""


def test_a_claim_larger_than_every_node_is_reported():
    fleet = VALID_CLASS + "---\n" + SLICE_OF_NODE % ("n1", "n1", "n1") + SLICE_OF_NODE % ("n2", "n2", "n2")
    claim = INVALID_CLAIM.replace("Big_One", "r").replace(", bogus: 1", ", count: %d")
    result = check("-f", "-", "-o", "json", stdin=fleet + claim % 2)
    assert json.loads(result.stdout)["findings"] == []
    (finding,) = json.loads(check("-f", "-", "-o", "json", stdin=fleet + claim % 3).stdout)["findings"]
    assert (finding["code"], finding["object"], finding["path"]) == ("D315", "ResourceClaim/default/claim", "/spec")
    assert "2 nodes" in finding["message"]
    assert finding["message"].endswith("[R023]")
    assert finding["remedy"] == "request at most 2 devices in claim claim, request r"


def test_a_too_large_claim_is_not_reported_in_mode_off():
    nodes = "".join(f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n" for name in ("n1", "n2"))
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {drawbridge.dev/mode: %s}}\n---\n"
    fleet = VALID_CLASS + "---\n" + nodes + SLICE_OF_NODE % ("n1", "n1", "n1") + SLICE_OF_NODE % ("n2", "n2", "n2")
    claim = INVALID_CLAIM.replace("Big_One", "r").replace(", bogus: 1", ", count: 3")
    codes = {
        mode: {
            finding["code"]
            for finding in json.loads(check("-f", "-", "-o", "json", stdin=fleet + namespace % mode + claim).stdout)[
                "findings"
            ]
        }
        for mode in ("enforce", "'off'")
    }
    assert codes == {"enforce": {"R023"}, "'off'": set()}


def test_a_checked_object_replaces_its_namesake_in_the_inventory(tmp_path):
    fleet_file = tmp_path / "fleet.yaml"
    fleet_file.write_text(VALID_CLASS + "---\n" + SLICE_OF_NODE % ("n1", "n1", "n1"))
    result = check("-f", str(fleet_file), "--inventory", str(fleet_file), "-o", "json")
    assert json.loads(result.stdout)["findings"] == []
    changed_slice = (SLICE_OF_NODE % ("n1", "n1", "n1")).replace("{name: b}", "{name: c}")
    assert (
        json.loads(check("-f", "-", "--inventory", str(fleet_file), "-o", "json", stdin=changed_slice).stdout)[
            "findings"
        ]
        == []
    )


def test_a_taint_that_admission_may_tolerate_blocks_no_pod_template(tmp_path):
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(manifests.dump([node("old", gpu=8) | {"spec": {"taints": [taint]}}, node("bare")]))
    pod = requesting_pod()
    deployment = workload("Deployment", "d", pod["spec"], labels={"a": "b"})
    on_bare_node = workload("Deployment", "e", pod["spec"] | BARE_NODE_SELECTOR, labels={"a": "b"})
    text = "---\n".join(json.dumps(obj) + "\n" for obj in (pod, deployment, on_bare_node))
    _, answer = run_json("check", "-f", "-", "--inventory", str(fleet), stdin=text)
    by_kind = {
        finding["object"].split("/")[0]: (finding["object"][-2:], finding["message"]) for finding in answer["findings"]
    }
    assert sorted(by_kind) == ["Deployment", "Pod"]
    assert by_kind["Deployment"][0] == "/e"  # the Deployment on the bare node
    assert "it waits unless the API server adds the toleration (ExtendedResourceToleration)" in by_kind["Pod"][1]


# The device plugin of node `old` offers 8 GPUs; node `bare` has no plugin.
PLUGIN_AND_BARE_NODES = (node("old", gpu=8), node("bare"))
BARE_NODE_SELECTOR = {"nodeSelector": {"kubernetes.io/hostname": "bare"}}
TAINTED_NODE = node("bare") | {"spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]}}
LABELLED_NODE_TEMPLATE = {
    "nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "allocatable": {"nvidia.com/gpu": "8"}}]
}
UNLABELLED_NODE_TEMPLATE = {"nodeTemplates": [{"name": "burst", "labels": {}, "allocatable": {"nvidia.com/gpu": "8"}}]}


# D222: no node and no class has the key. D221: the pod cannot run on the nodes that have it.
@pytest.mark.parametrize(
    ("pod", "nodes", "configuration", "expected_code"),
    [
        (requesting_pod(), (node("bare"), node("other")), {}, "D222"),
        (requesting_pod(key="amd.com/gpu"), PLUGIN_AND_BARE_NODES, {}, "D222"),
        (requesting_pod(), (node("starting", gpu=0), node("other")), {}, ""),
        (requesting_pod(key="nvidia.com/gpumem"), PLUGIN_AND_BARE_NODES, {}, ""),
        (requesting_pod(key="volcano.sh/vgpu-number", schedulerName="volcano"), PLUGIN_AND_BARE_NODES, {}, "D222"),
        (requesting_pod(key="volcano.sh/vgpu-memory", schedulerName="volcano"), PLUGIN_AND_BARE_NODES, {}, ""),
        (requesting_pod(**BARE_NODE_SELECTOR), PLUGIN_AND_BARE_NODES, {}, "D221"),
        (requesting_pod(key="example.com/my-gpu", **BARE_NODE_SELECTOR), (node("old", **{"example.com/my-gpu": 1}), node("bare")), {}, "D221"),
        (requesting_pod(), (TAINTED_NODE | {"status": node("old", gpu=8)["status"]}, node("other")), {}, "D221"),
        (requesting_pod(), PLUGIN_AND_BARE_NODES, {}, ""),
        (requesting_pod(**BARE_NODE_SELECTOR), (node("bare"),), {}, "D222"),
        (requesting_pod(**BARE_NODE_SELECTOR), PLUGIN_AND_BARE_NODES, UNLABELLED_NODE_TEMPLATE, "D221"),
        (requesting_pod(**BARE_NODE_SELECTOR), (node("bare"),), UNLABELLED_NODE_TEMPLATE, "D222"),
        (requesting_pod(nodeSelector={"pool": "burst"}), PLUGIN_AND_BARE_NODES, LABELLED_NODE_TEMPLATE, ""),
        (requesting_pod(nodeSelector={"pool": "burst"}), (node("bare"),), LABELLED_NODE_TEMPLATE, ""),
        (requesting_pod(**BARE_NODE_SELECTOR), (*PLUGIN_AND_BARE_NODES, *migrated_fleet("new", extended="nvidia.com/gpu")), {}, ""),
    ],
)  # fmt: skip
def test_check_and_translate_give_a_pod_the_same_warning(tmp_path, pod, nodes, configuration, expected_code):
    pod_file, fleet_file, config_file = tmp_path / "pod.json", tmp_path / "fleet.yaml", tmp_path / "config.json"
    pod_file.write_text(json.dumps(pod))
    fleet_file.write_text(manifests.dump(list(nodes)))
    config_file.write_text(
        json.dumps({"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"} | configuration)
    )
    options = ("-f", str(pod_file), "--inventory", str(fleet_file), "--config", str(config_file))
    _, answer = run_json("check", *options)
    findings = [finding for finding in answer["findings"] if finding["code"] in ("D221", "D222")]
    warnings = run("translate", *options).stderr
    expected_codes = [expected_code] if expected_code else []
    assert [finding["code"] for finding in findings] == expected_codes, answer
    assert [code for code in ("D221", "D222") if f"[{code}]" in warnings] == expected_codes
    for finding in findings:
        assert finding["severity"] == "warning"
        assert finding["path"].startswith("/spec/containers/0/resources/limits/")
        assert finding["message"].removeprefix("container c0: ").partition(": ")[2] in warnings


@pytest.mark.parametrize(("effect", "codes"), [("NoSchedule", ["D318"]), ("None", [])])
def test_a_pod_is_reported_if_taints_block_all_its_devices(tmp_path, effect, codes):
    """The DeviceClass is in the inventory, so `check` reports nothing about the class itself."""
    fleet_file = tmp_path / "fleet.yaml"
    fleet_file.write_text(TAINTED_FLEET.replace("effect: NoSchedule", f"effect: {effect}"))
    pod_file = tmp_path / "pod.yaml"
    pod_file.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a},"
        " spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
    )
    _, answer = run_json("check", "-f", str(pod_file), "--inventory", str(fleet_file))
    assert [finding["code"] for finding in answer["findings"]] == codes


def test_sample_nodes_without_any_class_do_not_show_that_a_class_is_missing(tmp_path):
    nodes = manifest(tmp_path / "nodes.yaml", node("n"), claim_for(1, "nic.example.com"))
    for command in ("check", "translate"):
        exit_code, answer = run_json(command, "-f", nodes)
        assert (exit_code, "R021" in json.dumps(answer)) == (0, False), command


@pytest.mark.parametrize(("missing_kind", "expected_exit_code"), [("", 1), ("Node", 0)])
@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_a_missing_class_is_reported_only_if_nodes_are_known(tmp_path, option, missing_kind, expected_exit_code):
    """Slices without nodes are often samples in a repository, and the driver may install the class later."""
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in migrated_fleet("n") if obj["kind"] != missing_kind])
    claim_file = manifest(tmp_path / "claim.yaml", claim_for(1, "nic.example.com"))
    for command in ("check", "translate"):
        exit_code, answer = run_json(command, "-f", claim_file, option, fleet)
        assert ("R021" in json.dumps(answer)) is bool(expected_exit_code), command
        if (command, option, missing_kind) != (
            "check",
            "--inventory",
            "Node",
        ):  # `check` reports D301, because the inventory has other classes
            assert exit_code == expected_exit_code, command


@pytest.mark.parametrize(
    ("missing_kind", "expected_exit_code", "expected_severities"), [("", 1, {"R023": "error"}), ("Node", 0, {})]
)
def test_a_claim_is_too_large_only_if_nodes_are_known(tmp_path, missing_kind, expected_exit_code, expected_severities):
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in migrated_fleet("n") if obj["kind"] != missing_kind])
    claim_file = manifest(tmp_path / "claim.yaml", claim_for(9))
    exit_code, answer = run_json("check", "-f", claim_file, "-f", fleet)
    severities = {
        finding["code"]: finding["severity"] for finding in answer["findings"] if finding["code"].startswith("R")
    }
    assert (exit_code, severities) == (expected_exit_code, expected_severities)


def claim_for(count, class_name="gpu.nvidia.com"):
    requests = [{"name": "r", "exactly": {"deviceClassName": class_name, "count": count}}]
    return obj("ResourceClaim", "c", "resource.k8s.io/v1", devices={"requests": requests})


@pytest.mark.parametrize("with_nodes", [True, False])
def test_a_claim_that_waits_for_a_missing_slice_has_the_reason_of_translate(with_nodes, tmp_path):
    objects = [value for value in scenes.fleet(1, 2) if with_nodes or value["kind"] != "Node"]
    [pool] = [value["spec"]["pool"] for value in objects if value["kind"] == "ResourceSlice"]
    pool["resourceSliceCount"] = 2
    claim_file = manifest(tmp_path / "claim.json", scenes.claim("c"))
    _, answer = run_json("check", "-f", claim_file, "--inventory", scenes.dump(tmp_path, *objects))
    [finding] = answer["findings"]
    assert (finding["code"], finding["object"]) == ("D315", "ResourceClaim/default/c")
    assert "pool gpu.example.com/n0 is incomplete: 1 slices of generation 1 exist" in finding["message"]
    assert "driver" in finding["remedy"]
    if with_nodes:
        report = run("translate", "-f", claim_file, "--inventory", tmp_path / "dump.json", "-o", "report").stdout
        assert finding["message"] in report
    pool["resourceSliceCount"] = 1
    _, answer = run_json("check", "-f", claim_file, "--inventory", scenes.dump(tmp_path, *objects))
    assert answer["findings"] == []
