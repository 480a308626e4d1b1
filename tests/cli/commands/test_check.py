"""`drawbridge check` as its users meet it: what it prints, in every format, and how it exits."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from analysis.check import findings_of_decisions
from cli.main import main
from cluster import manifests
from tests.cli.commands.test_translate import TAINTED
from tests.cli.running import manifest, run_json
from tests.corpus.move import asking, moved, node
from webhook.dialects import Outcome
from webhook.translate import Decision

GOOD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"
BAD = """apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: claim
spec:
  devices:
    requests:
    - name: Big_One
      exactly: {deviceClassName: gpu, bogus: 1}
"""
WARNING = GOOD.replace("spec: {}", "spec: {suitableNodes: {}}")
INFO = GOOD.replace("{name: gpu}", "{name: gpu, namespace: team}")


def run(*arguments, text=None):
    return CliRunner().invoke(main, ["check", *arguments], input=text)


def test_good_manifests_exit_0_with_a_summary():
    result = run("-f", "-", text=GOOD)
    assert result.exit_code == 0
    assert result.stdout == "1 object checked: 0 errors, 0 warnings, 0 info\n"


def test_text_names_object_place_code_and_remedy(tmp_path):
    file = tmp_path / "claim.yaml"
    file.write_text("# a comment\n---\n" + BAD)
    result = run("-f", str(file))
    assert result.exit_code == 1
    assert "ResourceClaim/default/claim" in result.stdout
    assert f"{file}:10:7: error D102 at /spec/devices/requests/0/name" in result.stdout
    assert "for example 'big-one'" in result.stdout


def test_json_keeps_the_contract():
    result = run("-f", "-", "-o", "json", text=BAD)
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["findings"]
    assert {finding["code"] for finding in findings} == {"D102", "D002"}
    for finding in findings:
        assert {"code", "severity", "object", "path", "message", "remedy"} <= finding.keys()
        assert finding["object"] == "ResourceClaim/default/claim"
        assert finding["severity"] in ("error", "warning", "info")


def test_sarif_has_the_shape_of_2_1_0():
    result = run("-f", "-", "-o", "sarif", text=BAD)
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    (sarif_run,) = log["runs"]
    rules = sarif_run["tool"]["driver"]["rules"]
    assert sarif_run["tool"]["driver"]["name"] == "drawbridge"
    assert len(sarif_run["results"]) == 2
    for reported in sarif_run["results"]:
        assert rules[reported["ruleIndex"]]["id"] == reported["ruleId"]
        assert reported["level"] in ("error", "warning", "note")
        (location,) = reported["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "stdin"
        assert location["physicalLocation"]["region"]["startLine"] >= 8


def test_github_annotations_are_one_line_each_and_escaped(tmp_path):
    file = tmp_path / "a,b.yaml"
    file.write_text(BAD.replace("Big_One", '"Big\\nOne"'))
    lines = run("-f", str(file), "-o", "github").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::warning"]
    assert "a%2Cb.yaml,line=8,col=7,title=D102::" in lines[0]
    assert run("-f", "-", "-o", "github", text=GOOD).stdout == ""


def test_junit_is_xml_with_one_case_an_object():
    root = ET.fromstring(
        run("-f", "-", "-o", "junit", text=GOOD + "---\n" + BAD.replace("Big_One", '"a\\u0001<&"')).stdout
    )
    assert root.attrib == {"tests": "2", "failures": "1"}
    assert [len(case.findall("failure")) for case in root.iter("testcase")] == [0, 1]


def test_objects_that_share_a_name_stay_two_objects():
    root = ET.fromstring(run("-f", "-", "-o", "junit", text=BAD + "---\n" + BAD).stdout)
    assert root.attrib == {"tests": "2", "failures": "2"}


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (BAD, "error", 1),
        (BAD, "never", 0),
        (WARNING, "error", 0),
        (WARNING, "warning", 1),
        (INFO, "warning", 0),
        (INFO, "info", 1),
        (GOOD, "info", 0),
    ],
)
def test_fail_on_decides_about_the_exit(text, fail_on, code):
    assert run("-f", "-", "--fail-on", fail_on, text=text).exit_code == code


def test_the_inventory_is_known_but_not_judged(tmp_path):
    (tmp_path / "classes.yaml").write_text(WARNING)
    claim = (
        BAD.replace("Big_One", "r").replace(", bogus: 1", "").replace("deviceClassName: gpu", "deviceClassName: gpus")
    )
    result = run("-f", "-", "--inventory", str(tmp_path), "-o", "json", text=claim)
    assert [finding["code"] for finding in json.loads(result.stdout)["findings"]] == ["D301"]


def test_feature_gates_decide_about_fields():
    device = "{name: a, consumesCounters: [{counterSet: s, counters: {a: {value: 1}}, compatibilityGroups: [BAD]}]}"
    slice_ = f"""apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: s}}
spec: {{driver: d, allNodes: true, pool: {{name: p, generation: 1, resourceSliceCount: 2}}, devices: [{device}]}}
"""
    assert run("-f", "-", text=slice_).exit_code == 0
    assert run("-f", "-", "--feature-gates", "DRADeviceCompatibilityGroups=true", text=slice_).exit_code == 1
    assert run("-f", "-", "--feature-gates", "AllAlpha=true", text=slice_).exit_code == 1
    broken = run("-f", "-", "--feature-gates", "Nonsense=true", text=slice_)
    assert broken.exit_code == 2
    assert "Nonsense" in broken.stderr


def test_codes_are_explained():
    assert "a selector is not valid CEL" in CliRunner().invoke(main, ["explain", "d110"]).stdout
    everything = CliRunner().invoke(main, ["explain", "all", "-o", "json"])
    assert len(json.loads(everything.stdout)["codes"]) > 50
    assert CliRunner().invoke(main, ["explain", "D999"]).exit_code == 2


def test_keys_given_twice_are_found_with_their_line():
    result = run("-f", "-", "-o", "json", text=GOOD + "spec: {selectors: []}\n")
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["code"], finding["place"]["line"]) == ("D005", 5)


def test_a_table_for_pull_requests_keeps_its_columns():
    lines = run("-f", "-", "-o", "markdown", text=BAD.replace("Big_One", '"a|b"')).stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in table)
    good = run("-f", "-", "-o", "markdown", text=GOOD).stdout
    assert good == "# drawbridge check\n\n1 object checked: 0 errors, 0 warnings, 0 info\n"


def test_configuration_files_are_judged_too():
    text = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmetadata: {name: c}\nbogus: 1\n"
    (finding,) = json.loads(run("-f", "-", "-o", "json", text=text).stdout)["findings"]
    assert (finding["code"], finding["path"], finding["place"]["line"]) == ("C001", "/bogus", 4)
    assert run("-f", "-", text=text.replace("bogus: 1\n", "")).exit_code == 0


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


def test_a_claim_that_fits_on_no_single_node_is_found_by_the_allocator():
    fleet = GOOD + "---\n" + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = BAD.replace("Big_One", "r").replace(", bogus: 1", ", count: %d")
    fits = run("-f", "-", "-o", "json", text=fleet + claim % 2)
    assert json.loads(fits.stdout)["findings"] == []
    (finding,) = json.loads(run("-f", "-", "-o", "json", text=fleet + claim % 3).stdout)["findings"]
    assert (finding["code"], finding["object"], finding["path"]) == ("D315", "ResourceClaim/default/claim", "/spec")
    assert "2 nodes" in finding["message"]


def test_a_claim_that_no_node_could_serve_bears_the_code_and_the_remedy_of_the_webhooks_refusal():
    fleet = GOOD + "---\n" + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = BAD.replace("Big_One", "r").replace(", bogus: 1", ", count: 3")
    (finding,) = json.loads(run("-f", "-", "-o", "json", text=fleet + claim).stdout)["findings"]
    assert finding["message"].endswith("on one node, and the largest node has 2 [R023]")
    assert finding["remedy"] == "it would fit if claim claim, request r asked for no more than 2 devices"


def test_where_nodes_are_given_a_claim_is_judged_by_the_webhook_alone():
    nodes = "".join(f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n---\n" for name in ("n1", "n2"))
    space = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {drawbridge.dev/mode: %s}}\n---\n"
    fleet = GOOD + "---\n" + nodes + FLEET % ("n1", "n1", "n1") + FLEET % ("n2", "n2", "n2")
    claim = BAD.replace("Big_One", "r").replace(", bogus: 1", ", count: 3")
    codes = {
        mode: {
            finding["code"]
            for finding in json.loads(run("-f", "-", "-o", "json", text=fleet + space % mode + claim).stdout)[
                "findings"
            ]
        }
        for mode in ("enforce", "'off'")
    }
    assert codes == {"enforce": {"R023"}, "'off'": set()}


def test_many_findings_of_one_kind_are_shown_in_part_to_people_and_in_full_to_machines():
    labels = ", ".join(f"bad label {n}: x" for n in range(10))
    text = GOOD.replace("{name: gpu}", f"{{name: gpu, labels: {{{labels}}}}}")
    shown = run("-f", "-", text=text).stdout
    assert shown.count(" D102 at ") == 3
    assert "and 7 more D102" in shown
    assert "10 errors" in shown
    assert len(json.loads(run("-f", "-", "-o", "json", text=text).stdout)["findings"]) == 10


def test_an_unreadable_inventory_object_is_reported(tmp_path):
    (tmp_path / "class.yaml").write_text(GOOD.replace("spec: {}", "spec: [1]").replace("name: gpu", "name: nic"))
    result = run("-f", "-", "--inventory", str(tmp_path), text=GOOD)
    assert result.exit_code == 0
    assert "class.yaml:1: not a valid DeviceClass, so it is left out of the inventory" in result.stderr


def test_an_input_without_objects_is_mentioned():
    result = run("-f", "-", text="---\n# nothing\n")
    assert result.exit_code == 0
    assert "no objects" in result.stderr


def test_a_checked_object_takes_the_place_of_its_namesake_in_the_inventory(tmp_path):
    manifests = tmp_path / "fleet.yaml"
    manifests.write_text(GOOD + "---\n" + FLEET % ("n1", "n1", "n1"))
    result = run("-f", str(manifests), "--inventory", str(manifests), "-o", "json")
    assert json.loads(result.stdout)["findings"] == []
    renewed = (FLEET % ("n1", "n1", "n1")).replace("{name: b}", "{name: c}")
    assert (
        json.loads(run("-f", "-", "--inventory", str(manifests), "-o", "json", text=renewed).stdout)["findings"] == []
    )


TRAIN = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec: {trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 0.5}}}}
"""


def test_requests_outside_a_pod_template_are_reported_at_their_own_path():
    done = run("-f", "-", text=TRAIN)
    assert done.exit_code == 1
    assert (
        "R001 at /spec/trainer/resourcesPerNode/limits/nvidia.com~1gpu: container trainer/resourcesPerNode"
        in done.stdout
    )
    typo = TRAIN.replace("nvidia.com/gpu: 0.5", "nvidia.com/gpumemory: 1")
    done = run("-f", "-", text=typo)
    assert done.exit_code == 0
    assert "D211 at /spec/trainer/resourcesPerNode/limits/nvidia.com~1gpumemory" in done.stdout
    strange = typo.replace("TrainJob", "Weird").replace("nvidia.com/gpumemory", "nvidia.com/gpu")
    assert "not checked: drawbridge does not know how Weird uses it" in run("-f", "-", text=strange).stdout


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("disabled", "'disabled' is not a valid mode (expected off, observe, warn, enforce)"),
        ("Off", "is not a string"),
        ('"off"', ""),
    ],
)
def test_a_misspelt_mode_of_a_namespace_is_found(word, says):
    text = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n  labels:\n    drawbridge.dev/mode: {word}\n"
    result = run("-f", "-", text=text)
    assert result.exit_code == (1 if says else 0), result.output
    assert says in result.stdout
    assert ("-:6:" in result.stdout and "D214" in result.stdout) == bool(says), result.stdout


def test_the_webhook_knows_a_better_way_out_than_the_api_server():
    fleet = Path(__file__).parents[3] / "manifests" / "examples" / "fleet"
    half = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 0.5}}}]}"
    done = run("-f", "-", "--inventory", str(fleet), text=half)
    assert "R001" in done.stdout
    assert "nvidia.com/gpumem (MiB) or nvidia.com/gpucores (percent)" in done.stdout


def test_objects_of_other_namespaces_are_known_and_not_judged():
    bad = BAD.replace("name: claim", "name: claim\n  namespace: other")
    assert run("-f", "-", text=bad).exit_code == 1
    assert run("-f", "-", "-n", "team", text=bad).stdout == "0 objects checked: 0 errors, 0 warnings, 0 info\n"
    assert "ResourceClaim/team/claim" in run("-f", "-", "-n", "team", text=BAD).stdout


def test_a_container_beyond_a_limit_range_is_found_in_pods_and_workloads():
    given = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "ns"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]},
    }
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "3"}}}]}
    a_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": spec}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    text = "---\n".join(json.dumps(obj) + "\n" for obj in (given, a_pod, deployment))
    _, answer = run_json("check", "-f", "-", stdin=text)
    places = [(finding["code"], finding["object"], finding["path"]) for finding in answer["findings"]]
    at = "/spec/containers/0/resources/limits/cpu"
    assert sorted(set(places)) == [("D219", "Deployment/ns/d", f"/spec/template{at}"), ("D219", "Pod/ns/p", at)]
    _, answer = run_json("check", "-f", "-", stdin=text.replace('"cpu": "3"', '"cpu": "2"'))
    assert answer["findings"] == []


def test_a_taint_that_the_api_server_may_tolerate_keeps_no_pod_of_a_template(tmp_path):
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


OLD_AND_BARE = (node("old", gpu=8), node("bare"))
ON_BARE = {"nodeSelector": {"kubernetes.io/hostname": "bare"}}
CORDONED = node("bare") | {"spec": {"taints": [{"key": "kept", "effect": "NoSchedule"}]}}
POOL = {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "allocatable": {"nvidia.com/gpu": "8"}}]}
BURST = {"nodeTemplates": [{"name": "burst", "labels": {}, "allocatable": {"nvidia.com/gpu": "8"}}]}


@pytest.mark.parametrize(
    ("given", "around", "configuration", "warned"),
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
def test_a_pod_that_no_device_plugin_can_serve_where_it_may_go_is_named_as_translate_names_it(
    tmp_path, given, around, configuration, warned
):
    pods, fleet, config = tmp_path / "pod.json", tmp_path / "fleet.yaml", tmp_path / "config.json"
    pods.write_text(json.dumps(given))
    fleet.write_text(manifests.dump(list(around)))
    config.write_text(
        json.dumps({"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"} | configuration)
    )
    options = ("-f", str(pods), "--inventory", str(fleet), "--config", str(config))
    _, answer = run_json("check", *options)
    findings = [finding for finding in answer["findings"] if finding["code"] in ("D221", "D222")]
    translated = CliRunner().invoke(main, ["translate", *options]).stderr
    assert [finding["code"] for finding in findings] == [warned][: bool(warned)], answer
    assert [code for code in ("D221", "D222") if f"[{code}]" in translated] == [warned][: bool(warned)]
    for finding in findings:
        assert finding["severity"] == "warning"
        assert finding["path"].startswith("/spec/containers/0/resources/limits/")
        assert finding["message"].removeprefix("container c0: ").partition(": ")[2] in translated


@pytest.mark.parametrize(("taint", "expected"), [("NoSchedule", ["D318"]), ("None", [])])
def test_a_pod_whose_resource_name_only_tainted_devices_serve_is_named(tmp_path, taint, expected):
    """Also where the class is in the inventory, which is not judged itself."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(TAINTED.replace("effect: NoSchedule", f"effect: {taint}"))
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a},"
        " spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n"
    )
    _, answer = run_json("check", "-f", str(pod), "--inventory", str(fleet))
    assert [finding["code"] for finding in answer["findings"]] == expected


@pytest.mark.parametrize(
    ("given", "around", "code"),
    [
        (asking(9), OLD_AND_BARE, "R023"),
        (asking(8), OLD_AND_BARE, ""),
        (asking(5, nodeSelector={"kubernetes.io/hostname": "few"}), (*OLD_AND_BARE, node("few", gpu=4)), "R020"),
        (asking(2, key="example.com/my-gpu"), (node("old", **{"example.com/my-gpu": 1}),), ""),
        (asking(9), (node("bare"),), ""),
    ],
)
def test_a_pod_that_no_device_plugin_could_serve_is_refused_by_nodes_alone(tmp_path, given, around, code):
    pods, fleet = tmp_path / "pod.json", tmp_path / "fleet.yaml"
    pods.write_text(json.dumps(given))
    fleet.write_text(manifests.dump(list(around)))
    options = ("-f", str(pods), "--inventory", str(fleet))
    exit_code, answer = run_json("check", *options)
    assert [finding["code"] for finding in answer["findings"] if finding["code"].startswith("R")] == [code] * bool(code)
    assert bool(exit_code) is bool(code)
    translated = CliRunner().invoke(main, ["translate", *options])
    assert (f"[{code}]" in translated.stderr, translated.exit_code) == (bool(code), int(bool(code)))


INVENTORIES = Path(__file__).parents[3] / "manifests" / "examples" / "inventories"


def test_an_inventory_of_a_machine_is_judged_as_the_driver_reads_it(tmp_path):
    done = run(str(INVENTORIES))
    assert (done.exit_code, done.stdout) == (0, "3 objects checked: 0 errors, 0 warnings, 0 info\n")
    text = (INVENTORIES / "hgx-h100.yaml").read_text()
    (tmp_path / "twice.yaml").write_text(text.replace("- name: gpu-1\n", "- name: gpu-0\n"))
    (tmp_path / "typed.yaml").write_text(text.replace("compute: 7", "compute: x"))
    code, answer = run_json("check", tmp_path)
    assert code == 1
    assert ("D001", "/layouts/0/compute", 10) in {
        (finding["code"], finding["path"], finding["place"]["line"]) for finding in answer["findings"]
    }
    assert "C001" in {
        finding["code"] for finding in answer["findings"] if finding["place"]["file"].endswith("twice.yaml")
    }


@pytest.mark.parametrize(
    ("of_decision", "basis"),
    [
        ({}, ""),
        ({"assumed": True}, "the usual meaning of the key"),
        ({"basis": "the pod selects x"}, "the pod selects x"),
    ],
)
def test_a_finding_says_what_the_meaning_of_a_key_rests_on(of_decision, basis):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    decision = Decision("p", "c", "d", "k", Outcome.APPROXIMATED, "differs", **of_decision)
    [finding] = findings_of_decisions(pod, [decision])
    assert (finding.code, finding.basis) == ("M001", basis)


@pytest.mark.parametrize(("left_out", "code"), [("", 1), ("Node", 0)])
@pytest.mark.parametrize("option", ["-f", "--inventory"])
def test_only_a_fleet_with_its_nodes_lacks_a_class(tmp_path, option, left_out, code):
    """Slices without nodes are samples, as repositories have them: the class may come with its driver."""
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in moved("n") if obj["kind"] != left_out])
    asked = manifest(tmp_path / "claim.yaml", claim_of(1, "nic.example.com"))
    for command in ("check", "translate"):
        exit_code, answer = run_json(command, "-f", asked, option, fleet)
        assert ("R021" in json.dumps(answer)) is bool(code), command
        if (command, option, left_out) != ("check", "--inventory", "Node"):  # D301: the inventory has classes
            assert exit_code == code, command


@pytest.mark.parametrize(("left_out", "code", "expected"), [("", 1, {"R023": "error"}), ("Node", 0, {})])
def test_only_a_fleet_with_its_nodes_is_too_small(tmp_path, left_out, code, expected):
    fleet = manifest(tmp_path / "fleet.yaml", *[obj for obj in moved("n") if obj["kind"] != left_out])
    asked = manifest(tmp_path / "claim.yaml", claim_of(9))
    exit_code, answer = run_json("check", "-f", asked, "-f", fleet)
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
