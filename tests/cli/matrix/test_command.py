"""`drawbridge matrix` and the allocator say the same about every pair."""

import itertools

import pytest

from tests.cli.commands.test_allocate import KINDS, PROPOSALS
from tests.cli.running import manifest, modes, run, run_json


def kind(row):
    return row["devices"][0].split("-")[2]


@pytest.mark.parametrize("files", PROPOSALS.values(), ids=PROPOSALS)
def test_the_matrix_of_the_four_modes_agrees_with_allocating_every_pair(files):
    _, found = run_json("matrix", *modes("classes", *files))
    rows = found["pools"][0]["rows"]
    assert [kind(row) for row in rows] == ["fractioning", "mps", "mig", "exclusive"]
    for (at, one), (column, other) in itertools.product(enumerate(rows), repeat=2):
        wanted = kind(other) if at != column else f"{kind(other)}-too"
        code, answer = run_json(
            "allocate",
            *modes("classes", "claims", *files),
            "--node",
            "gpu-node",
            "--claim",
            kind(one),
            "--claim",
            wanted,
        )
        cell = one["cells"][column]
        assert (cell["stage"] is None) == (code == 0), (kind(one), kind(other))
        if code:
            assert cell["stage"] == answer["reasons"][-1]["stage"]


def test_the_table_has_a_row_for_each_way_and_says_why():
    result = run("matrix", *modes("classes", "groups"))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "pool gpu-node of driver gpu.example.com"
    for name in KINDS:
        assert any(f"gpu-0-{name}" in line for line in lines)
    assert (
        "  1 and 3  groups  gpu-0-fractioning-0 is in fractioning, mps, gpu-0-mig-0 is in mig: nothing in common on counter set gpu-0"
        in lines
    )


def test_a_rule_that_only_one_side_has_is_pointed_out(tmp_path):
    rules = [
        {
            "apiVersion": "drawbridge.dev/v1alpha1",
            "kind": "DeviceCompatibility",
            "metadata": {"name": name},
            "spec": {
                "driver": "gpu.example.com",
                "selector": f'device.attributes["gpu.example.com"].mode == "{mode}"',
                "compatibleOnlyWith": expression,
            },
        }
        for name, mode, expression in (
            ("mig-alone", "mig", 'device.attributes["gpu.example.com"].mode == "mig"'),
            ("mps-open", "mps", "true"),
        )
    ]
    result = run("matrix", *modes("classes", "plain"), "-f", manifest(tmp_path / "rules.yaml", *rules))
    assert "one-sided: DeviceCompatibility/mig-alone keeps gpu-0-mps-0 away from gpu-0-mig-0" in result.stdout


def test_a_counter_set_that_no_device_uses_leaves_no_devices():
    assert "no devices" in run("matrix", *modes("classes", "groups"), "--counter-set", "other").stdout


def test_a_pool_that_cannot_be_used_says_why(tmp_path):
    page = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "p"},
        "spec": {
            "driver": "d",
            "nodeName": "gpu-node",
            "pool": {"name": "half", "generation": 1, "resourceSliceCount": 2},
            "devices": [{"name": "x"}],
        },
    }
    result = run("matrix", *modes("classes"), "-f", manifest(tmp_path / "page.yaml", page))
    assert "cannot be used (incomplete)" in result.stdout


@pytest.mark.parametrize("args", [("--pool", "nowhere"), ("--node", "nowhere")])
def test_an_unknown_pool_or_node_exits_with_2_and_names_the_known_ones(args):
    result = run("matrix", *modes("classes", "groups"), *args)
    assert result.exit_code == 2
    assert "gpu-node" in result.stderr
