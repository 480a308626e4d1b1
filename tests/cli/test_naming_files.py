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


def test_the_last_definition_of_a_duplicate_object_counts_with_a_warning(tmp_path):
    """Two copies of one slice are not two slices: applied, the second replaces the first."""
    objects = [node("n0"), class_("gpu"), slice_("n0", gpu("gpu-0"), name="s")]
    again = slice_("n0", gpu("gpu-0"), gpu("gpu-1"), name="s")
    both = manifest(tmp_path / "both.yaml", *objects, again, claim("c", exactly("gpu", count=2)))
    result = run("allocate", "-f", both, "--node", "n0")
    assert result.exit_code == 0
    assert "defined more than once, the last definition counts: ResourceSlice s" in result.stderr
    more = [claim("c", exactly("gpu", count=2)), slice_("n0", gpu("gpu-0"), name="s")]
    assert (
        run("allocate", "-f", manifest(tmp_path / "less.yaml", *objects, again, *more), "--node", "n0").exit_code == 1
    )


@pytest.mark.parametrize("command", ["translate", "check", "allocate", "simulate", "survey"])
def test_two_files_that_ran_together_without_a_line_between_are_told(command, tmp_path):
    """`cat a.yaml b.yaml`: the last object of one and the first of the other are one mapping, of which half is lost."""
    first = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n"
    second = "# the other file\napiVersion: v1\nkind: Node\nmetadata:\n  name: b\n"
    file = tmp_path / "both.yaml"
    file.write_text(first + second)
    more = ["--all-nodes"] if command == "allocate" else []
    told = f"{file}:7: duplicate key kind: only one of two objects is read; is a line --- missing?"
    assert told in run(command, "-f", str(file), *more).stderr
    file.write_text(f"{first}---\n{second}")
    assert "given twice" not in run(command, "-f", str(file), *more).stderr


@pytest.mark.parametrize("selector", ["a=b,,c", "a in b", "=", "!!"])
def test_a_selector_that_cannot_be_read_is_a_broken_usage(selector, tmp_path):
    file = manifest(tmp_path / "pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    result = run("survey", "-f", file, "-l", selector)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: -l: unable to parse label selector")
    assert "Traceback" not in result.stderr
