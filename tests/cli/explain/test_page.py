"""docs/commands.md shows what `drawbridge matrix` prints."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```\n\$ drawbridge (.*)\n((?:.*\n)*?)```")
IN_USE = [
    one
    for one in BLOCK.findall((ROOT / "docs" / "commands.md").read_text())
    if one[0].startswith("matrix -f manifests/examples/why")
]


def test_the_page_of_matrices_shows_one_in_use():
    assert len(IN_USE) == 1


@pytest.mark.parametrize(("line", "shown"), IN_USE, ids=[line for line, _ in IN_USE])
def test_the_page_shows_the_exact_output_of_each_command(line, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = run(*shlex.split(line))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == shown
