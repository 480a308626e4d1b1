"""No command ends in a traceback over values of any shape, wherever in an object they stand."""

import json
import random

import pytest

from dra import validation
from dra.validation.objects import judge
from tests import shapes
from tests.cli.running import manifest, run, run_json
from tests.draws import draws

COMMANDS = {
    "check": (),
    "translate": ("-o", "json"),
    "survey": (),
    "simulate": (),
    "explain": ("pod/a",),
    "doctor": (),
    "quota": (),
    "simulate claims": ("--claims",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_values_of_any_shape_are_no_bug(command, tmp_path):
    draw = random.Random(f"shapes of {command}")
    file = tmp_path / "drawn.json"
    for number in range(draws(200 if command == "check" else 80)):
        objects = [shapes.drawn(draw) for _ in range(draw.randint(1, 4))]
        file.write_text("\n".join(map(json.dumps, objects)))
        around = ("--inventory", file) if command == "check" and number % 2 else ()
        done = run(command.split()[0], *COMMANDS[command], "-f", file, *around)
        assert done.exception is None or isinstance(done.exception, SystemExit), objects
        assert "this is a bug" not in done.output, objects
        assert "D010" not in done.output, objects


@pytest.mark.parametrize("shape", shapes.SOME, ids=repr)
def test_every_member_of_every_drivers_parameters_may_have_any_shape(shape):
    """Each by itself, and each object's members all together."""
    for judged in shapes.claims_with(shape):
        codes = [finding.code for finding in validation.review([judged])[0]]
        assert "D010" not in codes, judged


def test_a_rule_about_several_members_looks_at_the_well_formed_ones():
    """Only the malformed strategy is reported; beside a valid one, the rule's other findings are."""

    def codes_of(sharing):
        parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing}
        judged = shapes.claim_with("gpu.nvidia.com", parameters)
        return [
            (problem.code, problem.path.rpartition("sharing/")[2])
            for problem in validation.problems(judged)
            if problem.code.startswith("D7")
        ]

    assert codes_of({"strategy": {}, "mpsConfig": {}}) == [("D703", "strategy")]
    assert codes_of({"strategy": "TimeSlicing", "mpsConfig": {}, "timeSlicingConfig": 1}) == [
        ("D703", "timeSlicingConfig"),
        ("D704", "mpsConfig"),
        ("D709", "strategy"),
    ]


def test_an_exception_about_one_object_names_it_and_leaves_the_others_judged(tmp_path, monkeypatch):
    rules = judge._rules

    def fails(typed, value, gates):
        if typed.metadata.name == "second":
            raise KeyError("a bug")
        return rules(typed, value, gates)

    monkeypatch.setattr(judge, "_rules", fails)
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
    [bug] = [finding for finding in answer["findings"] if finding["code"] == "D010"]
    assert "KeyError in fails" in bug["message"]


@pytest.mark.parametrize("shape", [value for value in shapes.SHAPES if isinstance(value, dict | list)], ids=repr)
def test_a_kind_of_any_shape_may_stand_in_the_inventory(shape, tmp_path):
    for kind in ("ResourceSlice", "DeviceQuota", "ComputeDomain"):
        [obj, *_] = shapes.examples()[kind]
        file = tmp_path / f"{kind}.json"
        file.write_text(json.dumps(obj | {"kind": shape}))
        assert run("check", "-f", manifest(tmp_path / "x.json", shapes.DOMAIN), "--inventory", file).exit_code in (0, 2)


def test_a_kind_that_is_a_list_stands_beside_a_compute_domain(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(
        json.dumps(shapes.DOMAIN) + json.dumps({"apiVersion": "v1", "kind": ["Pod"], "metadata": {"name": []}})
    )
    code, answer = run_json("check", "-f", file)
    assert code == 1
    assert [finding["code"] for finding in answer["findings"] if finding["severity"] == "error"] == ["D008"]
