"""`drawbridge check .` in whole repositories. e2e/kubernetes/test_trees.py compares its errors with those of the API server."""

import os
from bisect import bisect_right

import pytest

from analysis.check.decisions import _placeholder
from tests.cli.running import manifest, run, run_json
from tests.corpus.trees import TREES, write_tree


def check_outcomes(documents):
    """Return the exit code of `check .`, and the outcome of each document, which is given by its file and its first line.

    Outcomes: refused, unfilled (it has placeholders), passed by (it is not checked), or '' if it is valid.
    """
    code, answer = run_json("check", ".")
    lines = {}
    for name, line in documents:
        lines.setdefault(name, []).append(line)

    def document_at(place):
        name, line = place["file"].removeprefix("./"), place["line"]
        return name, lines[name][bisect_right(lines[name], line) - 1] if line else 1

    outcomes = dict.fromkeys(documents, "")
    for finding in answer["findings"]:
        if finding["severity"] == "error":
            outcomes[document_at(finding["place"])] = "refused"
        elif finding["code"] == "D011":
            assert outcomes[document_at(finding["place"])] == "", finding
            outcomes[document_at(finding["place"])] = "unfilled"
    for skip in answer["skippedDocuments"]:
        outcomes[document_at(skip)] = "passed by"
    assert "errors" not in answer
    return code, outcomes


@pytest.mark.parametrize("name", TREES)
def test_check_gives_each_document_its_expected_outcome(name, tmp_path, monkeypatch):
    expected_outcomes = write_tree(TREES[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    code, outcomes = check_outcomes(expected_outcomes)
    assert outcomes == expected_outcomes
    assert code == (1 if "refused" in expected_outcomes.values() else 0)


def test_skipped_files_are_counted_with_a_remedy(tmp_path, monkeypatch):
    write_tree(TREES["chart"] | TREES["overlay"], tmp_path)
    monkeypatch.chdir(tmp_path)
    result = run("check", ".")
    assert result.stdout.count("warning D012: nvidia.com/gpu is requested here") == 1, "the overlay is read"
    lines = [line for line in result.stderr.splitlines() if "skipped, " in line]
    assert [line.partition(" (")[0] for line in lines] == [
        "warning: skipped, not a manifest: 5 files",
        "warning: skipped, templates in 3 files",
        "warning: skipped, part of a kustomization: 4 files",
    ]
    assert "-k DIR" in lines[2]
    assert "--chart chart, or" in lines[1]


def test_a_github_workflow_is_not_called_a_template(tmp_path, monkeypatch):
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ci.yaml").write_text("on: push\njobs:\n  a:\n    if: ${{ always() }}\n  runs-on: {{ x }}\n")
    monkeypatch.chdir(tmp_path)
    assert (
        run("check", ".").stderr.splitlines()[-1]
        == "warning: skipped, not a manifest: 1 file (.github/workflows/ci.yaml)"
    )


@pytest.fixture
def renderers(tmp_path, monkeypatch):
    """Programs that print no objects, in place of helm and kustomize."""
    folder = tmp_path.with_name("bin")
    folder.mkdir(exist_ok=True)
    for name in ("helm", "kustomize"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


@pytest.mark.usefixtures("renderers")
def test_rendered_charts_and_kustomizations_are_not_reported_as_skipped(tmp_path, monkeypatch):
    unrendered_files = {f"own/{file}": text for file, text in TREES["overlay"].items()}
    write_tree(TREES["chart"] | TREES["overlay"] | unrendered_files, tmp_path)
    monkeypatch.chdir(tmp_path)
    _, answer = run_json("check", ".", "--chart", "chart", "-k", "prod")
    assert {skip["file"].removeprefix("./") for skip in answer["skippedDocuments"] if skip["reason"] != "other"} == {
        *("own/base/kustomization.yaml", "own/prod/kustomization.yaml", "own/shared/limits.yaml"),
        "own/prod/gpus.yaml",
    }


@pytest.mark.parametrize("command", ["check", "translate -o report", "survey"])
def test_a_kustomize_patch_that_is_given_alone_is_skipped(command, tmp_path, monkeypatch):
    write_tree(TREES["overlay"], tmp_path)
    (tmp_path / ".git").mkdir()  # kustomizations are looked for up to this folder
    monkeypatch.chdir(tmp_path)
    for name in ("prod/gpus.yaml", "./prod/gpus.yaml", tmp_path / "prod" / "gpus.yaml"):
        assert "skipped, part of a kustomization: 1 file" in run(*command.split(), "-f", name).output


def test_unreadable_files_are_reported_as_github_annotations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.yaml").write_text("# apiVersion\na: [\n")
    result = run("check", ".", "--chart", "none", "-o", "github")
    assert result.exit_code == 2
    assert "holds no objects" not in result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith("::error file=a%2Cb.yaml,line=3,col=1,title=unreadable::")
    assert (
        second
        == "::error title=unreadable::none: cannot be read: No such file or directory (correct the path, or create the file)"
    )


@pytest.mark.parametrize("piece", ["{{", "{{ a }", "${a", "<a", "{{<${a "])
def test_the_search_for_placeholders_takes_linear_time(piece):
    """In quadratic time, the test would reach its time limit."""
    _placeholder({"a": piece * 200_000}, "/a")


def test_the_placeholders_of_a_file_are_a_single_finding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {}}}\nspec: {{devices: {{requests: [{{name: R_1}}]}}}}\n"
    (tmp_path / "a.yaml").write_text("---\n".join(claim.format(name) for name in ("'${A}'", "'<your name>'")))
    _, answer = run_json("check", "a.yaml")
    codes = [finding["code"] for finding in answer["findings"]]
    assert codes.count("D011") == 1
    assert codes.count("D102") == 2  # for the name of each request


@pytest.mark.parametrize("text", ["a: [", "{", "a: b: c", "- ]", "a: !!binary x"])
def test_unreadable_text_is_an_error_only_if_it_mentions_apiversion(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(text)
    assert run("check", "a.yaml").exit_code == 0
    (tmp_path / "a.yaml").write_text(f"# apiVersion\n{text}")
    assert run("check", "a.yaml").exit_code == 2


# The name and the text of a file, and the line and the key of its first request.
SKIPPED_FILES = {
    "a limit": ("values.yaml", "a: 1\nresources:\n  limits:\n    nvidia.com/gpu: 1\n", ":4 nvidia.com/gpu"),
    "a limit in the second document": ("values.yaml", "a: 1\n---\nb: {limits: {'amd.com/gpu': '2'}}\n", ":3 amd.com/gpu"),
    "a limit in a template": ("t.yaml", "a: b\n---\n{{- if .x }}\nnvidia.com/gpu: {{ .Values.gpus }}\n{{- end }}\n", ":4 nvidia.com/gpu"),
    "a limit in the second template": ("t.yaml", "{{ if .a }}\nb: c\n---\n{{ if .x }}\nnvidia.com/gpu: {{ .Values.gpus }}\n", ":5 nvidia.com/gpu"),
    "a limit in a list": ("list.yaml", "- op: add\n- nvidia.com/gpu: 1\n", ":2 nvidia.com/gpu"),
    "comments": ("values.yaml", "# nvidia.com/gpu: 1\na: {}  # nvidia.com/gpu: 1\n", ""),
    "a node selector and an amount of 0": ("values.yaml", "nodeSelector: {nvidia.com/gpu: present}\nlimits: {nvidia.com/gpu: 0}\n", ""),
    "a JSON schema": ("values.schema.json", '{"properties": {"nvidia.com/gpu": {"type": "string"}, "amd.com/gpu": {}}}', ""),
    "no key of a dialect": ("values.yaml", "limits: {example.com/gpu-less: 1}\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("command", ["check {}", "translate -f {} -o report", "survey -f {}"])
@pytest.mark.parametrize("case", SKIPPED_FILES.values(), ids=SKIPPED_FILES)
def test_a_skipped_file_is_reported_only_if_it_requests_devices(command, case, tmp_path, monkeypatch):
    name, text, line_and_key = case
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    output = run(*command.format(name).split(), "--color", "never").output
    assert "skipped, " in output
    if command.startswith("check"):
        line, _, key = line_and_key.removeprefix(":").partition(" ")
        message = f"{name}:{line}:1: warning D012: {key} is requested here, and this file is not checked"
        assert message in output if line_and_key else "D012" not in output
        return
    assert (
        f"devices are requested in 1 file ({name}{line_and_key}), outside of any object that is read; read" in output
        if line_and_key
        else "requested in" not in output
    )


@pytest.mark.usefixtures("renderers")
def test_values_of_a_rendered_chart_are_not_reported(tmp_path, monkeypatch):
    write_tree(TREES["chart"] | {"chart/values.yaml": "limits: {nvidia.com/gpu: 1}\n"}, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prod.yaml").write_text("limits: {nvidia.com/gpu: 2}\n")
    assert run("check", ".").output.count("D012") == 2
    assert "prod.yaml:1:1: warning D012" in run("check", ".", "--chart", "chart").output
    assert "D012" not in run("check", ".", "--chart", "chart", "--values", "prod.yaml").output


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github", "junit", "markdown"])
def test_values_that_request_devices_are_a_finding_in_every_format(form, tmp_path, monkeypatch):
    write_tree(TREES["chart"] | {"chart/values.yaml": "limits: {nvidia.com/gpu: 1}\n"}, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("check", "chart", "-o", form).exit_code == 0
    result = run("check", "chart", "-o", form, "--fail-on", "warning")
    assert result.exit_code == 1
    assert "D012" in result.stdout
    assert "chart/values.yaml" in result.stdout


def test_the_summary_counts_unchecked_files_that_request_devices(tmp_path, monkeypatch):
    manifest(tmp_path / "pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    (tmp_path / "chart").mkdir()
    for name in ("values.yaml", "prod.yaml"):
        (tmp_path / "chart" / name).write_text("limits: {nvidia.com/gpu: 1}\n")
    (tmp_path / "chart" / "other.yaml").write_text("limits: {cpu: 1}\n")
    monkeypatch.chdir(tmp_path)
    first = run("check", "chart").stdout.splitlines()[0]
    assert first == "0 objects checked, 2 files with device requests not checked: 0 errors, 2 warnings, 0 info"
    (tmp_path / "chart" / "prod.yaml").unlink()
    first = run("check", "chart").stdout.splitlines()[0]
    assert first == "0 objects checked, 1 file with device requests not checked: 0 errors, 1 warning, 0 info"
    (tmp_path / "chart" / "values.yaml").unlink()
    assert run("check", "chart").stdout == "0 objects checked: 0 errors, 0 warnings, 0 info\n"


# A test of Chainsaw, in which `($ports)` stands for a value.
CHAINSAW_POD = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: x
    ports: ($ports)
    resources: {limits: {nvidia.com/gpu: ($gpus)}}
"""


@pytest.mark.parametrize(
    "gpus", ["($gpus)", "(to_string($gpus))", "(length(@))", "@GPUS@", "%GPUS%", "'#{gpus}#'", "'[[ .gpus ]]'"]
)
def test_a_placeholder_in_a_pod_is_a_warning(gpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chainsaw.yaml").write_text(CHAINSAW_POD.replace("($gpus)", gpus if gpus[0] in "('" else f"'{gpus}'"))
    code, answer = run_json("check", "chainsaw.yaml")
    [finding] = answer["findings"]
    assert (code, finding["code"], finding["severity"]) == (0, "D011", "warning")
    # Without a placeholder, ports of a wrong type are an error.
    (tmp_path / "chainsaw.yaml").write_text(CHAINSAW_POD.replace("($ports)", "ports").replace("($gpus)", "1"))
    code, answer = run_json("check", "chainsaw.yaml")
    assert (code, {error["code"] for error in answer["findings"]}) == (1, {"D001"})


FOREIGN_KINDS = [("example.com/v1", "Thing"), ("ray.io/v1", "RayJob"), ("kubeflow.org/v1", "PyTorchJob"), ("jobset.x-k8s.io/v1alpha2", "JobSet")]  # fmt: skip


@pytest.mark.parametrize(("version", "kind"), FOREIGN_KINDS)
def test_the_template_name_of_a_foreign_kind_is_not_validated(version, kind, tmp_path, monkeypatch):
    """A CRD does not validate the metadata of a template, and the operator names the pods. Labels of known kinds are validated, because the operator copies them to the pods."""
    monkeypatch.chdir(tmp_path)
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}

    def codes(**metadata):
        template = {"metadata": metadata, "spec": {"containers": [container]}}
        foreign_object = {"apiVersion": version, "kind": kind, "metadata": {"name": "p"}, "spec": {"worker": {"template": template}}}  # fmt: skip
        manifest(tmp_path / "all.yaml", foreign_object)
        return {finding["code"] for finding in run_json("check", "all.yaml")[1]["findings"]}

    assert "D102" not in codes(name="A_B", generateName="A_", namespace="C_D", labels={"a": "b"})
    assert ("D102" in codes(name="a", labels={"a b": "c"})) == (kind != "Thing")


def test_survey_counts_values_that_request_devices_as_unknown(tmp_path, monkeypatch):
    write_tree(TREES["chart"] | {"chart/values.yaml": "limits: {nvidia.com/gpu: 1}\n"}, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("survey", "-f", "chart").exit_code == 0
    assert run("survey", "-f", "chart", "--fail-on", "unknown").exit_code == 1
    assert run("survey", "-f", "chart/crds", "--fail-on", "unknown").exit_code == 0


@pytest.mark.parametrize(("name", "key"), [("values.yaml", "nvidia.com/gpu"), ("other.yaml", "")])
def test_a_skipped_file_is_listed_with_line_and_key(name, key, tmp_path, monkeypatch):
    (tmp_path / name).write_text(f"a: 1\nlimits: {{{key or 'cpu'}: 1}}\n")
    monkeypatch.chdir(tmp_path)
    _, answer = run_json("check", ".")
    line = 2 if key else 1
    assert answer["skippedDocuments"] == [{"file": name, "line": line, "reason": "other", "key": key, "makes": ""}]


CONFIGURATION_WITH_DIALECT = {
    "apiVersion": "drawbridge.dev/v1alpha1",
    "kind": "DrawbridgeConfiguration",
    "dialects": [
        {"name": "ours", "title": "Ours", "keys": [{"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}]}
    ],
}


@pytest.mark.parametrize(
    "command", ["check -f chart", "survey -f chart", "simulate -f chart", "translate -o report -f chart"]
)
def test_a_key_from_the_configuration_is_found_in_skipped_files(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart" / "values.yaml").write_text("resources:\n  limits:\n    our.org/gpu: 1\n")
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION_WITH_DIALECT)
    message = "devices are requested in 1 file (chart/values.yaml:3 our.org/gpu)"
    if command.startswith("check"):
        message = "chart/values.yaml:3:1: warning D012: our.org/gpu is requested here"
    assert message in run(*command.split(), "--config", config).output
    assert message not in run(*command.split()).output
    manifest(tmp_path / "chart" / "configuration.yaml", CONFIGURATION_WITH_DIALECT)
    if not command.startswith("survey"):  # survey reads only --config
        assert message in run(*command.split()).output
