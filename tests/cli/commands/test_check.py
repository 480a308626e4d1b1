"""`drawbridge check`: each output format, the exit code, and findings about a single object."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from analysis.check import findings_of_decisions
from analysis.findings import ObjectFindings
from cli.formats import junit
from dra.finding import Finding, Place, Severity
from tests import objects
from tests.cli.commands.checks import INVALID_CLAIM, VALID_CLASS, check
from tests.cli.running import run, run_json
from tests.objects import obj, workload
from webhook.dialects import Outcome
from webhook.translate import Decision

CLASS_WITH_WARNING = VALID_CLASS.replace("resource.k8s.io/v1", "resource.k8s.io/v1beta2")
CLASS_WITH_INFO = VALID_CLASS.replace("{name: gpu}", "{name: gpu, namespace: team}")


def test_valid_manifests_exit_with_0_and_a_summary():
    result = check("-f", "-", stdin=VALID_CLASS)
    assert result.exit_code == 0
    assert result.stdout == "1 object checked: 0 errors, 0 warnings, 0 info\n"


def test_text_names_object_place_code_and_remedy(tmp_path):
    file = tmp_path / "claim.yaml"
    file.write_text("# a comment\n---\n" + INVALID_CLAIM)
    result = check("-f", str(file))
    assert result.exit_code == 1
    assert "ResourceClaim/default/claim" in result.stdout
    assert f"  {file}:10:7: error D102: " in result.stdout
    assert result.stdout.count(str(file)) == len(json.loads(check("-f", str(file), "-o", "json").stdout)["findings"])
    assert "for example 'big-one'" in result.stdout


def test_json_findings_have_the_fields_of_the_contract():
    result = check("-f", "-", "-o", "json", stdin=INVALID_CLAIM)
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["findings"]
    assert {finding["code"] for finding in findings} == {"D102", "D002"}
    for finding in findings:
        assert {"code", "severity", "object", "path", "message", "remedy"} <= finding.keys()
        assert finding["object"] == "ResourceClaim/default/claim"
        assert finding["severity"] in ("error", "warning", "info")


def test_sarif_has_the_structure_of_version_2_1_0():
    result = check("-f", "-", "-o", "sarif", stdin=INVALID_CLAIM)
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
    file.write_text(INVALID_CLAIM.replace("Big_One", '"Big\\nOne"'))
    lines = check("-f", str(file), "-o", "github").stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error", "::error"]
    assert "a%2Cb.yaml,line=8,col=7,title=D102::" in lines[0]
    assert check("-f", "-", "-o", "github", stdin=VALID_CLASS).stdout == ""


def test_junit_is_xml_with_a_case_per_object():
    root = ET.fromstring(
        check(
            "-f", "-", "-o", "junit", stdin=VALID_CLASS + "---\n" + INVALID_CLAIM.replace("Big_One", '"a\\u0001<&"')
        ).stdout
    )
    assert root.attrib == {"tests": "2", "failures": "1"}
    assert [len(case.findall("failure")) for case in root.iter("testcase")] == [0, 1]


# XML 1.0, production 2: the characters of a document.
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


ODD_CHARACTERS = "\0\x1f\x7f\x85\ud800\udfff\ufffd\ufffe\uffff\U0010ffff]>&\"'\r\n"


@given(st.text(st.sampled_from(ODD_CHARACTERS) | st.characters(exclude_categories=())))
@example(ODD_CHARACTERS)
def test_junit_is_xml_whatever_names_and_messages_contain(text):
    place = Place(file=text, line=1, column=1)
    findings = [
        Finding(code="D102", severity=severity, object=text, path="", message=text, place=place)
        for severity in Severity
    ]
    report = junit([ObjectFindings(text, text, findings)], "check")
    [case] = ET.fromstring(report.encode()).iter("testcase")  # as it is written: a lone surrogate cannot be encoded
    shown = NO_XML.sub("\ufffd", text)
    assert (case.get("name"), case.get("classname")) == (shown, shown)
    assert shown in case.find("failure").text
    assert shown in case.find("system-out").text


def test_objects_that_share_a_name_stay_two_objects():
    root = ET.fromstring(check("-f", "-", "-o", "junit", stdin=INVALID_CLAIM + "---\n" + INVALID_CLAIM).stdout)
    assert root.attrib == {"tests": "2", "failures": "2"}


@pytest.mark.parametrize(
    ("text", "fail_on", "code"),
    [
        (INVALID_CLAIM, "error", 1),
        (INVALID_CLAIM, "never", 0),
        (CLASS_WITH_WARNING, "error", 0),
        (CLASS_WITH_WARNING, "warning", 1),
        (CLASS_WITH_INFO, "warning", 0),
        (CLASS_WITH_INFO, "info", 1),
        (VALID_CLASS, "info", 0),
    ],
)
def test_the_fail_on_option_sets_the_severity_that_fails(text, fail_on, code):
    assert check("-f", "-", "--fail-on", fail_on, stdin=text).exit_code == code


def test_objects_of_the_inventory_have_no_findings(tmp_path):
    (tmp_path / "classes.yaml").write_text(CLASS_WITH_WARNING)
    claim = (
        INVALID_CLAIM.replace("Big_One", "r")
        .replace(", bogus: 1", "")
        .replace("deviceClassName: gpu", "deviceClassName: gpus")
    )
    result = check("-f", "-", "--inventory", str(tmp_path), "-o", "json", stdin=claim)
    # D301 is about the claim, whose class does not exist.
    assert [finding["code"] for finding in json.loads(result.stdout)["findings"]] == ["D301"]


def test_a_field_is_checked_only_with_its_feature_gate():
    device = "{name: a, consumesCounters: [{counterSet: s, counters: {a: {value: 1}}, compatibilityGroups: [BAD]}]}"
    slice_ = f"""apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: s}}
spec: {{driver: d, allNodes: true, pool: {{name: p, generation: 1, resourceSliceCount: 2}}, devices: [{device}]}}
"""
    assert check("-f", "-", stdin=slice_).exit_code == 0
    assert check("-f", "-", "--feature-gates", "DRADeviceCompatibilityGroups=true", stdin=slice_).exit_code == 1
    assert check("-f", "-", "--feature-gates", "AllAlpha=true", stdin=slice_).exit_code == 1
    result = check("-f", "-", "--feature-gates", "Nonsense=true", stdin=slice_)
    assert result.exit_code == 2
    assert "Nonsense" in result.stderr


def test_duplicate_keys_are_reported_with_their_line():
    result = check("-f", "-", "-o", "json", stdin=VALID_CLASS + "spec: {selectors: []}\n")
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["code"], finding["place"]["line"]) == ("D005", 5)


def test_a_markdown_table_keeps_its_columns():
    lines = check("-f", "-", "-o", "markdown", stdin=INVALID_CLAIM.replace("Big_One", '"a|b"')).stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 6 for line in table)
    valid_report = check("-f", "-", "-o", "markdown", stdin=VALID_CLASS).stdout
    assert valid_report == "# drawbridge check\n\n1 object checked: 0 errors, 0 warnings, 0 info\n"


def test_configuration_files_are_checked():
    text = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmetadata: {name: c}\nbogus: 1\n"
    (finding,) = json.loads(check("-f", "-", "-o", "json", stdin=text).stdout)["findings"]
    assert (finding["code"], finding["path"], finding["place"]["line"]) == ("C001", "/bogus", 4)
    assert check("-f", "-", stdin=text.replace("bogus: 1\n", "")).exit_code == 0


def test_text_shortens_many_equal_findings_and_json_does_not():
    labels = ", ".join(f"bad label {n}: x" for n in range(10))
    text = VALID_CLASS.replace("{name: gpu}", f"{{name: gpu, labels: {{{labels}}}}}")
    output = check("-f", "-", stdin=text).stdout
    assert output.count("error D102: ") == 3
    assert "and 7 more D102" in output
    assert "10 errors" in output
    assert len(json.loads(check("-f", "-", "-o", "json", stdin=text).stdout)["findings"]) == 10


def test_an_unreadable_inventory_object_is_reported(tmp_path):
    (tmp_path / "class.yaml").write_text(VALID_CLASS.replace("spec: {}", "spec: [1]").replace("name: gpu", "name: nic"))
    result = check("-f", "-", "--inventory", str(tmp_path), stdin=VALID_CLASS)
    assert result.exit_code == 0
    assert "class.yaml:1: not a valid DeviceClass, so it is left out of the inventory" in result.stderr


TRAIN_JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec: {trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 0.5}}}}
"""


def test_a_request_outside_a_pod_template_has_its_own_path():
    result = check("-f", "-", stdin=TRAIN_JOB)
    assert result.exit_code == 1
    assert "-:4:46: error R001: container trainer/resourcesPerNode" in result.stdout
    misspelt_key = TRAIN_JOB.replace("nvidia.com/gpu: 0.5", "nvidia.com/gpumemory: 1")
    result = check("-f", "-", stdin=misspelt_key)
    assert result.exit_code == 0
    assert "-:4:46: warning D211: container trainer/resourcesPerNode" in result.stdout
    unknown_kind = misspelt_key.replace("TrainJob", "Weird").replace("nvidia.com/gpumemory", "nvidia.com/gpu")
    assert "not checked" in check("-f", "-", stdin=unknown_kind).stdout


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("disabled", "'disabled' is not a valid mode"),
        ("Off", "is not a string"),
        ('"off"', ""),
    ],
)
def test_a_mode_label_is_reported_only_if_it_is_invalid(mode, message):
    text = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team\n  labels:\n    drawbridge.dev/mode: {mode}\n"
    result = check("-f", "-", stdin=text)
    assert result.exit_code == (1 if message else 0), result.output
    assert message in result.stdout
    assert ("-:6:" in result.stdout and "D214" in result.stdout) == bool(message), result.stdout


def test_the_namespace_option_skips_objects_of_other_namespaces():
    claim = INVALID_CLAIM.replace("name: claim", "name: claim\n  namespace: other")
    assert check("-f", "-", stdin=claim).exit_code == 1
    assert check("-f", "-", "-n", "team", stdin=claim).stdout.startswith("0 objects checked: ")
    assert "ResourceClaim/team/claim" in check("-f", "-", "-n", "team", stdin=INVALID_CLAIM).stdout


def test_a_container_above_a_limit_range_is_reported():
    limit_range = obj("LimitRange", "l", namespace="ns", limits=[{"type": "Container", "max": {"cpu": "2"}}])
    pod = objects.pod("p", namespace="ns", limits={"cpu": "3"})
    deployment = workload("Deployment", "d", pod["spec"], namespace="ns", labels={"a": "b"})
    text = "---\n".join(json.dumps(obj) + "\n" for obj in (limit_range, pod, deployment))
    _, answer = run_json("check", "-f", "-", stdin=text)
    places = [(finding["code"], finding["object"], finding["path"]) for finding in answer["findings"]]
    limit_path = "/spec/containers/0/resources/limits/cpu"
    assert sorted(set(places)) == [
        ("D219", "Deployment/ns/d", f"/spec/template{limit_path}"),
        ("D219", "Pod/ns/p", limit_path),
    ]
    _, answer = run_json("check", "-f", "-", stdin=text.replace('"cpu": "3"', '"cpu": "2"'))
    assert answer["findings"] == []


EXAMPLE_INVENTORIES = Path(__file__).parents[3] / "manifests" / "examples" / "inventories"


def test_a_device_inventory_is_checked_by_the_drivers_rules(tmp_path):
    code, answer = run_json("check", EXAMPLE_INVENTORIES)
    assert (code, answer["findings"], answer["skippedDocuments"]) == (0, [], [])
    text = (EXAMPLE_INVENTORIES / "hgx-h100.yaml").read_text()
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
    ("fields", "basis"),
    [
        ({}, ""),
        ({"meaning_assumed": True}, "the usual meaning of the key"),
        ({"basis": "the pod selects x"}, "the pod selects x"),
    ],
)
def test_a_finding_has_the_basis_of_the_keys_meaning(fields, basis):
    """The basis says why drawbridge reads the key with this meaning."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    decision = Decision("p", "c", "d", "k", Outcome.APPROXIMATED, "differs", **fields)
    [finding] = findings_of_decisions(pod, [decision])
    assert (finding.code, finding.basis) == ("M001", basis)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("nvidia.com/gpucores: 130", "D224"),
        ("huawei.com/Ascend910B3: 1, huawei.com/Ascend910B3-core: 130", "D224"),
        ("nvidia.com/gpucores: 100", ""),
        ("volcano.sh/vgpu-memory: 1, volcano.sh/vgpu-cores: 130", "R002"),
        ("koordinator.sh/gpu-memory: 8Gi, koordinator.sh/gpu-core: 130", "R004"),
    ],
)
def test_more_than_all_cores_of_a_device_are_reported_as_the_system_means_them(limits, code):
    """HAMi takes them for 100, Volcano and Koordinator do not place such a pod."""
    container = f"{{name: c, image: x, resources: {{limits: {{{limits}}}}}}}"
    manifest = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{container}]}}\n"
    findings = json.loads(check("-f", "-", "-o", "json", stdin=manifest).stdout)["findings"]
    assert [finding["code"] for finding in findings] == [code] * bool(code)


@pytest.mark.parametrize("command", ["check", "doctor", "free", "survey", "simulate", "explain pod p", "translate"])
def test_an_unreadable_file_prints_its_error_alone(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*command.split(), "-f", "none.yaml")
    expected = "error: none.yaml: cannot be read: No such file or directory (correct the path, or create the file)\n"
    assert (result.exit_code, result.output) == (2, expected)
