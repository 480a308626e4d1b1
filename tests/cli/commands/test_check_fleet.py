"""`drawbridge check` of objects against a fleet: which claims and pods the nodes can serve."""

import json
from pathlib import Path

import pytest

from cluster import manifests
from tests.cli.commands.checks import INVALID_CLAIM, VALID_CLASS, check
from tests.cli.commands.translations import TAINTED_FLEET
from tests.cli.running import manifest, run, run_json
from tests.corpus.move import asking, moved, node

# A slice with two devices; the names of the slice, of its node and of its pool are filled in.
FLEET = """apiVersion: resource.k8s.io/v1
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
    fleet = VALID_CLASS + "---\n" + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = INVALID_CLAIM.replace("Big_One", "r").replace(", bogus: 1", ", count: %d")
    fits = check("-f", "-", "-o", "json", stdin=fleet + claim % 2)
    assert json.loads(fits.stdout)["findings"] == []
    (finding,) = json.loads(check("-f", "-", "-o", "json", stdin=fleet + claim % 3).stdout)["findings"]
    assert (finding["code"], finding["object"], finding["path"]) == ("D315", "ResourceClaim/default/claim", "/spec")
    assert "2 nodes" in finding["message"]


def test_a_claim_larger_than_every_node_has_the_webhooks_remedy():
    fleet = VALID_CLASS + "---\n" + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = INVALID_CLAIM.replace("Big_One", "r").replace(", bogus: 1", ", count: 3")
    (finding,) = json.loads(check("-f", "-", "-o", "json", stdin=fleet + claim).stdout)["findings"]
    assert finding["message"].endswith("on one node, but the largest node has 2 [R023]")
    assert finding["remedy"] == "request at most 2 devices in claim claim, request r"


def test_a_claim_too_large_for_the_nodes_follows_the_mode():
    nodes = "".join(f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n" for name in ("n1", "n2"))
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {drawbridge.dev/mode: %s}}\n---\n"
    fleet = VALID_CLASS + "---\n" + nodes + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = INVALID_CLAIM.replace("Big_One", "r").replace(", bogus: 1", ", count: 3")
    codes = {
        mode: {
            finding["code"]
            for finding in json.loads(check("-f", "-", "-o", "json", stdin=fleet + space % mode + claim).stdout)[
                "findings"
            ]
        }
        for mode in ("enforce", "'off'")
    }
    assert codes == {"enforce": {"R023"}, "'off'": set()}


def test_a_checked_object_replaces_the_inventory_object_of_its_name(tmp_path):
    manifests = tmp_path / "fleet.yaml"
    manifests.write_text(VALID_CLASS + "---\n" + FLEET % ("n1", "n1", "n1"))
    result = check("-f", str(manifests), "--inventory", str(manifests), "-o", "json")
    assert json.loads(result.stdout)["findings"] == []
    renewed = (FLEET % ("n1", "n1", "n1")).replace("{name: b}", "{name: c}")
    assert (
        json.loads(check("-f", "-", "--inventory", str(manifests), "-o", "json", stdin=renewed).stdout)["findings"]
        == []
    )


def test_a_fractional_gpu_count_has_a_remedy_with_shares():
    fleet = Path(__file__).parents[3] / "manifests" / "examples" / "fleet"
    half = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0.5}}}]}"
    result = check("-f", "-", "--inventory", str(fleet), stdin=half)
    assert "R001" in result.stdout
    assert "nvidia.com/gpumem (MiB) or nvidia.com/gpucores (percent)" in result.stdout


def test_a_taint_that_admission_may_tolerate_blocks_no_pod_template(tmp_path):
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(manifests.dump([node("old", gpu=8) | {"spec": {"taints": [taint]}}, node("bare")]))
    a_pod = asking()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": a_pod["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    kept = {"nodeSelector": {"kubernetes.io/hostname": "bare"}}
    template = template | {"spec": a_pod["spec"] | kept}
    elsewhere = deployment | {"metadata": {"name": "e"}, "spec": deployment["spec"] | {"template": template}}
    text = "---\n".join(json.dumps(obj) + "\n" for obj in (a_pod, deployment, elsewhere))
    _, answer = run_json("check", "-f", "-", "--inventory", str(fleet), stdin=text)
    by_kind = {
        finding["object"].split("/")[0]: (finding["object"][-2:], finding["message"]) for finding in answer["findings"]
    }
    assert sorted(by_kind) == ["Deployment", "Pod"]
    assert by_kind["Deployment"][0] == "/e"
    assert "it waits unless the API server adds the toleration (ExtendedResourceToleration)" in by_kind["Pod"][1]


# The device plugin of node `old` offers 8 GPUs; node `bare` has no plugin.
OLD_AND_BARE = (node("old", gpu=8), node("bare"))
ON_BARE = {"nodeSelector": {"kubernetes.io/hostname": "bare"}}
CORDONED = node("bare") | {"spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]}}
POOL = {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "allocatable": {"nvidia.com/gpu": "8"}}]}
BURST = {"nodeTemplates": [{"name": "burst", "labels": {}, "allocatable": {"nvidia.com/gpu": "8"}}]}


@pytest.mark.parametrize(
    ("given", "nodes_given", "configuration", "warned"),
    [
        (asking(), (node("bare"), node("other")), {}, "D222"),
        (asking(key="amd.com/gpu"), OLD_AND_BARE, {}, "D222"),
        (asking(), (node("starting", gpu=0), node("other")), {}, ""),
        (asking(key="nvidia.com/gpumem"), OLD_AND_BARE, {}, ""),
        (asking(**ON_BARE), OLD_AND_BARE, {}, "D221"),
        (asking(key="example.com/my-gpu", **ON_BARE), (node("old", **{"example.com/my-gpu": 1}), node("bare")), {}, "D221"),
        (asking(), (CORDONED | {"status": node("old", gpu=8)["status"]}, node("other")), {}, "D221"),
        (asking(), OLD_AND_BARE, {}, ""),
        (asking(**ON_BARE), (node("bare"),), {}, "D222"),
        (asking(**ON_BARE), OLD_AND_BARE, BURST, "D221"),
        (asking(**ON_BARE), (node("bare"),), BURST, "D222"),
        (asking(nodeSelector={"pool": "burst"}), OLD_AND_BARE, POOL, ""),
        (asking(nodeSelector={"pool": "burst"}), (node("bare"),), POOL, ""),
        (asking(**ON_BARE), (*OLD_AND_BARE, *moved("new", extended="nvidia.com/gpu")), {}, ""),
    ],
)  # fmt: skip
def test_check_and_translate_name_the_same_pods_without_a_plugin(tmp_path, given, nodes_given, configuration, warned):
    pods, fleet, config = tmp_path / "pod.json", tmp_path / "fleet.yaml", tmp_path / "config.json"
    pods.write_text(json.dumps(given))
    fleet.write_text(manifests.dump(list(nodes_given)))
    config.write_text(
        json.dumps({"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"} | configuration)
    )
    options = ("-f", str(pods), "--inventory", str(fleet), "--config", str(config))
    _, answer = run_json("check", *options)
    findings = [finding for finding in answer["findings"] if finding["code"] in ("D221", "D222")]
    translated = run("translate", *options).stderr
    assert [finding["code"] for finding in findings] == [warned][: bool(warned)], answer
    assert [code for code in ("D221", "D222") if f"[{code}]" in translated] == [warned][: bool(warned)]
    for finding in findings:
        assert finding["severity"] == "warning"
        assert finding["path"].startswith("/spec/containers/0/resources/limits/")
        assert finding["message"].removeprefix("container c0: ").partition(": ")[2] in translated


@pytest.mark.parametrize(("taint", "expected"), [("NoSchedule", ["D318"]), ("None", [])])
def test_a_pod_that_only_tainted_devices_could_serve_is_reported(tmp_path, taint, expected):
    """The DeviceClass is in the inventory, so `check` reports nothing about the class itself."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TAINTED_FLEET.replace("effect: NoSchedule", f"effect: {taint}"))
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a},"
        " spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
    )
    _, answer = run_json("check", "-f", str(pod), "--inventory", str(fleet))
    assert [finding["code"] for finding in answer["findings"]] == expected


@pytest.mark.parametrize(
    ("given", "nodes_given", "code"),
    [
        (asking(9), OLD_AND_BARE, "R023"),
        (asking(8), OLD_AND_BARE, ""),
        (asking(5, nodeSelector={"kubernetes.io/hostname": "few"}), (*OLD_AND_BARE, node("few", gpu=4)), "R020"),
        (asking(2, key="example.com/my-gpu"), (node("old", **{"example.com/my-gpu": 1}),), ""),
        (asking(9), (node("bare"),), ""),
    ],
)
def test_a_pod_too_large_for_every_device_plugin_is_refused(tmp_path, given, nodes_given, code):
    pods, fleet = tmp_path / "pod.json", tmp_path / "fleet.yaml"
    pods.write_text(json.dumps(given))
    fleet.write_text(manifests.dump(list(nodes_given)))
    options = ("-f", str(pods), "--inventory", str(fleet))
    exit_code, answer = run_json("check", *options)
    assert [finding["code"] for finding in answer["findings"] if finding["code"].startswith("R")] == [code] * bool(code)
    assert bool(exit_code) is bool(code)
    translated = run("translate", *options)
    assert (f"[{code}]" in translated.stderr, translated.exit_code) == (bool(code), int(bool(code)))


@pytest.mark.parametrize(("left_out", "code"), [("", 1), ("Node", 0)])
@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_a_missing_class_is_reported_only_with_nodes(tmp_path, option, left_out, code):
    """Slices without nodes are often samples in a repository, and the driver may install the class later."""
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in moved("n") if obj["kind"] != left_out])
    claim_file = manifest(tmp_path / "claim.yaml", claim_of(1, "nic.example.com"))
    for command in ("check", "translate"):
        exit_code, answer = run_json(command, "-f", claim_file, option, fleet)
        assert ("R021" in json.dumps(answer)) is bool(code), command
        if (command, option, left_out) != ("check", "--inventory", "Node"):  # which reports D301, because the inventory has other classes
            assert exit_code == code, command


@pytest.mark.parametrize(("left_out", "code", "expected"), [("", 1, {"R023": "error"}), ("Node", 0, {})])
def test_a_fleet_is_too_small_only_with_nodes(tmp_path, left_out, code, expected):
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in moved("n") if obj["kind"] != left_out])
    claim_file = manifest(tmp_path / "claim.yaml", claim_of(9))
    exit_code, answer = run_json("check", "-f", claim_file, "-f", fleet)
    severities = {
        finding["code"]: finding["severity"] for finding in answer["findings"] if finding["code"].startswith("R")
    }
    assert (exit_code, severities) == (code, expected)


def claim_of(count, name="gpu.nvidia.com"):
    requests = [{"name": "r", "exactly": {"deviceClassName": name, "count": count}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": requests}},
    }
