"""docs/explain.md shows what the command prints."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import run

ROOT = Path(__file__).parents[3]
SHOWN = re.findall(r"```\n\$ drawbridge (.*)\n((?:.*\n)*?)```", (ROOT / "docs" / "explain.md").read_text())


def test_the_page_shows_a_pod_a_claim_and_devices():
    assert [shlex.split(line)[1] for line, _ in SHOWN] == ["pod", "claim", "device", "device"]


@pytest.mark.parametrize(("line", "shown"), SHOWN, ids=[line for line, _ in SHOWN])
def test_what_the_page_shows_is_what_the_command_prints(line, shown, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = run(*shlex.split(line))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == shown
