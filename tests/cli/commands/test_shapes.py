"""No command ends with a traceback, whatever the type of a value in an object."""

import json
import random

import pytest

from dra import validation
from dra.validation.objects import judge
from tests import shapes
from tests.cli.running import manifest, run, run_json
from tests.limits import draws

OPTIONS_BY_COMMAND = {
    "check": (),
    "translate": ("-o", "json"),
    "survey": (),
    "simulate": (),
    "explain": ("pod/a",),
    "doctor": (),
    "quota": (),
    "simulate claims": ("--claims",),
}


@pytest.mark.parametrize("command", OPTIONS_BY_COMMAND)
def test_values_of_any_type_cause_no_exception(command, tmp_path):
    draw = random.Random(f"shapes of {command}")
    file = tmp_path / "drawn.json"
    for number in range(draws(200 if command == "check" else 80)):
        objects = [shapes.drawn(draw) for _ in range(draw.randint(1, 4))]
        file.write_text("\n".join(map(json.dumps, objects)))
        inventory = ("--inventory", file) if command == "check" and number % 2 else ()
        result = run(command.split()[0], *OPTIONS_BY_COMMAND[command], "-f", file, *inventory)
        assert result.exception is None or isinstance(result.exception, SystemExit), objects
        assert "this is a bug" not in result.output, objects
        assert "D010" not in result.output, objects  # the finding about an exception in a check


@pytest.mark.parametrize("shape", shapes.SOME, ids=repr)
def test_driver_parameters_of_any_type_cause_no_exception(shape):
    """In each claim, one parameter is malformed, or all parameters of an object are."""
    for claim in shapes.claims_with(shape):
        codes = [finding.code for finding in validation.review([claim])[0]]
        assert "D010" not in codes, claim


def test_rules_about_several_members_skip_a_malformed_member():
    """If the strategy is malformed, it is the only finding. If it is valid, the rules report the other members."""

    def codes_and_members(sharing):
        parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
        claim = shapes.claim_with("gpu.nvidia.com", parameters)
        return [
            (problem.code, problem.path.rpartition("sharing/")[2])
            for problem in validation.problems(claim)
            if problem.code.startswith("D7")
        ]

    assert codes_and_members({"strategy": {}, "mpsConfig": {}}) == [("D703", "strategy")]
    assert codes_and_members({"strategy": "TimeSlicing", "mpsConfig": {}, "timeSlicingConfig": 1}) == [
        ("D703", "timeSlicingConfig"),
        ("D704", "mpsConfig"),
        ("D709", "strategy"),
    ]


def test_an_exception_for_one_object_hides_no_finding_of_others(tmp_path, monkeypatch):
    rules = judge._rules

    def rules_with_a_bug(typed, value, gates):
        if typed.metadata.name == "second":
            raise KeyError("a bug")
        return rules(typed, value, gates)

    monkeypatch.setattr(judge, "_rules", rules_with_a_bug)
    file = tmp_path / "claims.json"
    names = ("first", "second", "th_ird")
    file.write_text("\n".join(json.dumps(shapes.claim_with("x", {}, name)) for name in names))
    code, answer = run_json("check", "-f", file)
    assert code == 1
    codes = [
        (finding["object"].rpartition("/")[2], finding["code"])
        for finding in answer["findings"]
        if finding["severity"] == "error"
    ]
    assert codes == [("second", "D010"), ("th_ird", "D102")]
    [bug_finding] = [finding for finding in answer["findings"] if finding["code"] == "D010"]
    assert "KeyError in rules_with_a_bug" in bug_finding["message"]


@pytest.mark.parametrize("shape", [value for value in shapes.SHAPES if isinstance(value, dict | list)], ids=repr)
def test_a_malformed_kind_in_the_inventory_causes_no_exception(shape, tmp_path):
    for kind in ("ResourceSlice", "DeviceQuota", "ComputeDomain"):
        [obj, *_] = shapes.examples()[kind]
        file = tmp_path / f"{kind}.json"
        file.write_text(json.dumps(obj | {"kind": shape}))
        assert run(
            "check", "-f", manifest(tmp_path / "x.json", shapes.COMPUTE_DOMAIN), "--inventory", file
        ).exit_code in (0, 2)


def test_an_object_whose_kind_is_a_list_is_reported(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(
        json.dumps(shapes.COMPUTE_DOMAIN) + json.dumps({"apiVersion": "v1", "kind": ["Pod"], "metadata": {"name": []}})
    )
    code, answer = run_json("check", "-f", file)
    assert code == 1
    assert [finding["code"] for finding in answer["findings"] if finding["severity"] == "error"] == ["D008"]
