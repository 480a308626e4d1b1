"""`drawbridge test` compares the outcome of pods with the expectations of its cases, and prints the differences."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.cli.running import run, run_json

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team"},
    "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 2}}}]},
}


def folder_with_cases(tmp_path, *expectations):
    """A folder with a file of cases: each case has the same pod on the example fleet, and one of these expectations."""
    file = tmp_path / "drawbridge-test.yaml"
    cases = [
        {"name": f"case {number}", "pod": POD, "expect": expectation} for number, expectation in enumerate(expectations)
    ]
    file.write_text(
        yaml.safe_dump(
            {"inventory": [str(EXAMPLES / "fleet")], "config": str(EXAMPLES / "configuration.yaml"), "cases": cases},
            sort_keys=False,
        )
    )
    return tmp_path


def test_the_cases_of_the_examples_pass():
    result = run("test", EXAMPLES / "cases")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "4 cases: 4 passed, 0 failed")
    assert run("test", "-q", EXAMPLES / "cases").stdout == "4 cases: 4 passed, 0 failed\n"


def test_a_case_that_matches_its_expectation_passes(tmp_path):
    code, answer = run_json(
        "test",
        folder_with_cases(
            tmp_path,
            {
                "outcome": "translated",
                "devices": {"gpu.nvidia.com": 2},
                "left": [],
                "says": "2 whole GPUs",
                "fits": True,
            },
        ),
    )
    assert (code, [case["passed"] for case in answer["cases"]]) == (0, [True])


WRONG_EXPECTATIONS = {
    "outcome": ({"outcome": "refused"}, "expected refused, got translated"),
    "code": ({"code": "R002"}, "expected refusal R002, got none"),
    "devices": ({"devices": {"other": 2}}, "expected devices 2 other, got 2 gpu.nvidia.com"),
    "left": ({"left": ["nvidia.com/gpu"]}, "expected keys left: nvidia.com/gpu; got none"),
    "says": ({"says": "a lamp"}, "expected a message with 'a lamp'"),
    "fits": ({"fits": False}, "expected some pod not to be placed, but every pod is"),
}


@pytest.mark.parametrize("field", WRONG_EXPECTATIONS)
def test_a_case_that_differs_from_its_expectation_fails(tmp_path, field):
    expectation, message = WRONG_EXPECTATIONS[field]
    folder = folder_with_cases(tmp_path, expectation, {"outcome": "translated"})
    result = run("test", folder)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "2 cases: 1 passed, 1 failed")
    assert f"fail  {folder / 'drawbridge-test.yaml'}:5  case 0" in result.stdout
    assert message in result.stdout
    suites = ET.fromstring(run("test", folder, "-o", "junit").stdout)
    assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
    assert message in "".join(suites.itertext())


def test_a_pod_does_not_fit_while_claims_hold_every_gpu(tmp_path):
    """A pod for one GPU is translated, and waits."""
    fleet = EXAMPLES / "why"  # an example in which claims hold every GPU
    gpu_pod = {
        **POD,
        "spec": {"containers": [{**POD["spec"]["containers"][0], "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    file = tmp_path / "drawbridge-test.yaml"
    cases = [{"name": "held", "pod": gpu_pod, "expect": {"outcome": "translated", "fits": False}}]
    file.write_text(yaml.safe_dump({"inventory": [str(fleet)], "cases": cases}))
    assert run("test", file).exit_code == 0
    cases[0]["expect"] = {"fits": True}
    file.write_text(yaml.safe_dump({"inventory": [str(fleet)], "cases": cases}))
    result = run("test", file)
    assert result.exit_code == 1
    assert "expected every pod to be placed: " in result.stdout
    assert "team/p: " in result.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cases: [{name: a, pod: {}, expect: {outcom: left}}]", "unknown field 'outcom'"),
        ("cases: [{name: a, pod: {}, expect: {outcome: lfet}}]", "'lfet'"),
        ("cases: [{name: a, pod: {}, expect: {}}]", "expect is empty"),
        (
            "cases: [{name: a, pod: {kind: ConfigMap, apiVersion: v1}, expect: {fits: true}}]",
            "neither a pod nor a workload",
        ),
        ("cases: [{name: a, pod: gone.yaml, expect: {fits: true}}]", "cannot be read"),
        ("cases: []", "cases is empty"),
        ("", "0 documents"),
        ("a: 1\n---\nb: 1", "2 documents"),
    ],
)
def test_an_invalid_file_of_cases_exits_with_2(tmp_path, text, message):
    (tmp_path / "drawbridge-test.yaml").write_text(text)
    code, answer = run_json("test", tmp_path)
    assert (code, answer["cases"]) == (2, [])
    assert message in "".join(f"{error['message']} {error.get('remedy')}" for error in answer["errors"])


def test_a_folder_without_cases_exits_with_2(tmp_path):
    assert run("test", tmp_path).exit_code == 2
