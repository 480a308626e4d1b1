"""docs/explain.md, and docs/simulate.md of matrices in use, show what the commands print."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```\n\$ drawbridge (.*)\n((?:.*\n)*?)```")
SHOWN = BLOCK.findall((ROOT / "docs" / "explain.md").read_text())
IN_USE = [one for one in BLOCK.findall((ROOT / "docs" / "simulate.md").read_text()) if "examples/why" in one[0]]


def test_the_page_shows_a_pod_nodes_a_claim_and_devices():
    words = [line.split(" -")[0].split()[:2] for line, _ in SHOWN]
    assert words == [["explain", "pod"], ["nodes"], ["explain", "claim"], ["explain", "device"], ["explain", "device"]]


def test_the_page_of_matrices_shows_one_in_use():
    assert len(IN_USE) == 1


@pytest.mark.parametrize(("line", "shown"), [*SHOWN, *IN_USE], ids=[line for line, _ in [*SHOWN, *IN_USE]])
def test_what_the_page_shows_is_what_the_command_prints(line, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = run(*shlex.split(line))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == shown
