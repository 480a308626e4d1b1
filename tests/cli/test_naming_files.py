"""What `-f` is given, and files that stand by themselves."""

import pytest

from tests.allocator.fleets import exactly, gpu
from tests.cli.commands.test_allocate import claim, class_, node, slice_
from tests.cli.running import manifest, run


@pytest.mark.parametrize("command", ["translate", "check", "allocate", "simulate", "matrix"])
def test_a_file_that_stands_by_itself_is_read_as_with_f(command, tmp_path):
    file = manifest(tmp_path / "pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    alone, named = run(command, file), run(command, "-f", file)
    assert (alone.exit_code, alone.stdout) == (named.exit_code, named.stdout)
    assert "nothing-of-this-name: cannot be read" in run(
        command, "nothing-of-this-name", "--", file
    ).stderr or command in (
        "allocate",
        "matrix",
    )


def test_a_file_without_an_end_is_broken_input():
    result = run("translate", "-f", "/dev/zero")
    assert result.exit_code == 2
    assert "/dev/zero: is larger than 512 MiB" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_is_written_twice_counts_once_and_that_is_said(tmp_path):
    """Two copies of one slice are not two slices: applied, the second replaces the first."""
    objects = [node("n0"), class_("gpu"), slice_("n0", gpu("gpu-0"), name="s")]
    again = slice_("n0", gpu("gpu-0"), gpu("gpu-1"), name="s")
    both = manifest(tmp_path / "both.yaml", *objects, again, claim("c", exactly("gpu", count=2)))
    result = run("allocate", "-f", both, "--node", "n0")
    assert result.exit_code == 0
    assert "written more than once, the last one counts: ResourceSlice s" in result.stderr
    more = [claim("c", exactly("gpu", count=2)), slice_("n0", gpu("gpu-0"), name="s")]
    assert (
        run("allocate", "-f", manifest(tmp_path / "less.yaml", *objects, again, *more), "--node", "n0").exit_code == 1
    )
