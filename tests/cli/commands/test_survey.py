"""`drawbridge survey`: the exit code, the output formats, and hostile names in them."""

import json

import pytest

from analysis.printable import printable
from analysis.survey.rows import CODES, findings
from cli import formats
from cli.terminal import columns_of, fit
from dra import codes
from dra.finding import Severity
from tests.cli.commands.surveys import (
    HAMI_CONTAINER,
    SHARE_LIMITS,
    running_deployment,
    running_pod,
    survey_of,
    with_limits,
)
from tests.cli.running import manifest, run, run_json
from webhook.dialects import Outcome

ESCAPE_SEQUENCES = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture
def dump(tmp_path):
    return manifest(
        tmp_path / "dump.yaml", *running_deployment(), running_pod("odd", with_limits(**{"nvidia_gpu.shared": 1}))
    )


def test_the_exit_code_tells_the_result_of_a_survey(dump, tmp_path):
    assert run("survey", "-f", dump).exit_code == 0, "a workload that is left counts as a failure"
    assert run("survey", "-f", dump, "--fail-on", "left").exit_code == 1
    assert run("survey", "-f", dump, "--fail-on", "never").exit_code == 0
    assert run("survey", "-f", tmp_path / "gone").exit_code == 2
    assert run("survey", "-f", dump, "--context", "x").exit_code == 2
    assert run("survey", "-f", dump, "-n", "a", "-A").exit_code == 2
    unreachable = run("survey", "--kubeconfig", tmp_path / "none")
    assert unreachable.exit_code == 3
    assert "no kubeconfig" in unreachable.stderr


def test_the_answer_in_json_names_file_and_line(dump):
    code, answer = run_json("survey", "-f", dump, "--fail-on", "left")
    assert code == 1
    assert answer["outcomes"] == {"translated": 1, "left": 1}
    workload = answer["workloads"][0]
    assert (workload["file"], workload["line"], workload["runningPods"]) == (str(dump), 1, 3)


def hostile_file(tmp_path):
    """A file with a pod whose names contain control characters and markup, and a pod with a wide name."""
    hostile_pod = running_pod(
        f"{ESCAPE_SEQUENCES}<script>alert(1)</script>\u202e",
        with_limits(f"@{ESCAPE_SEQUENCES}", **SHARE_LIMITS),
    )
    wide_pod = running_pod("名前" * 30, HAMI_CONTAINER)
    return manifest(tmp_path / "hostile.yaml", hostile_pod, wide_pod)


@pytest.mark.parametrize("form", ["text", "wide", "markdown", "json"])
def test_no_format_contains_terminal_control_characters(form, tmp_path):
    output = run("survey", "-f", hostile_file(tmp_path), "-o", form).stdout
    assert "\x1b" not in output
    assert form == "json" or "\u202e" not in output
    assert "\x07" not in output


def test_text_for_a_terminal_is_escaped_and_cut_to_columns():
    assert printable("a\x1bb\u202ec\ud800") == "a\\x1bb\\u202ec\\ud800"
    assert printable("名前 é") == "名前 é"
    assert columns_of("名前") == 4
    assert fit("名前です", 5) == "名前…"
    assert columns_of(fit("名前です", 6)) == 6
    assert fit("ab", 4) == "ab  "


def test_a_survey_can_be_written_as_sarif_junit_and_annotations(tmp_path):
    objects = [
        running_pod("stays", with_limits(**{"nvidia_gpu.shared": 2})),
        running_pod("moves", with_limits(nvidia_gpu=1)),
        running_pod("m", HAMI_CONTAINER),
    ]
    file = manifest(tmp_path / "pods.yaml", *objects, running_pod("half", with_limits(nvidia_gpu="0.5")))
    [sarif_run] = json.loads(run("survey", "-f", file, "-o", "sarif").stdout)["runs"]
    results = {(result["ruleId"], result["level"]) for result in sarif_run["results"]}
    assert results == {("M002", "warning"), ("R001", "error")}
    assert sarif_run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == str(file)
    junit = run("survey", "-f", file, "-o", "junit").stdout
    assert 'name="drawbridge survey" tests="4" failures="1"' in junit
    assert f"file={file},line=" in run("survey", "-f", file, "-o", "github").stdout


def test_findings_of_a_live_cluster_have_no_file_location():
    survey = survey_of(running_pod("stays", with_limits(**{"nvidia_gpu.shared": 2})))
    [result] = json.loads(formats.for_hosts("sarif", findings(survey), "survey"))["runs"][0]["results"]
    assert "physicalLocation" not in result["locations"][0]
    assert "file=" not in formats.for_hosts("github", findings(survey), "survey")


def test_only_refused_workloads_are_errors_in_a_survey():
    assert {outcome: codes.CODES[code].severity for outcome, code in CODES.items()} == {
        Outcome.APPROXIMATED: Severity.WARNING,
        Outcome.LEFT: Severity.WARNING,
        Outcome.UNKNOWN: Severity.WARNING,
        Outcome.REFUSED: Severity.ERROR,
    }


def test_help_says_that_survey_writes_nothing():
    assert "it writes nothing" in run("survey", "--help").output.replace("\n  ", " ")


def test_an_empty_survey_is_a_json_document(tmp_path):
    file = manifest(tmp_path / "x.yaml", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}})
    result = run("survey", "-f", file, "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)["workloads"]) == (0, [])
    assert "no workload requests a device" in run("survey", "-f", file).stdout
