"""Running the command in this process, as a shell would see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes

MODES = Path(__file__).parents[2] / "manifests" / "examples" / "modes"


def run(*args, stdin=None):
    """Run `drawbridge` and give its result: exit_code, stdout, stderr."""
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def run_json(*args, stdin=None):
    """Run `drawbridge ... -o json` and give exit code and document; there must be exactly one."""
    result = run(*args, "-o", "json", stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


def manifest(path, *objects):
    """Write objects as one manifest of JSON documents."""
    path.write_text("\n---\n".join(json.dumps(obj) for obj in objects))
    return path


def modes(*names):
    """Name files of the four-mode example as options."""
    return [part for name in names for part in ("-f", MODES / f"{name}.yaml")]


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    """An empty folder to work in, and an empty cluster to look at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded())
    return tmp_path
