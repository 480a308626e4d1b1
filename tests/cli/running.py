"""Runs `drawbridge` in this process, with arguments as a shell would pass them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes

MODES = Path(__file__).parents[2] / "manifests" / "examples" / "modes"


def run(*args, stdin=None):
    """Run `drawbridge` with these arguments. Return the result: exit_code, stdout, stderr."""
    return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)


def run_manifests(*options, **values):
    """Run `drawbridge manifests` with these values."""
    return run("manifests", "--values", "-", *options, stdin=json.dumps(values))


def run_json(*args, stdin=None):
    """Run `drawbridge ... -o json`. Return the exit code and the only document on stdout."""
    result = run(*args, "-o", "json", stdin=stdin)
    return result.exit_code, json.loads(result.stdout)


def manifest(path, *objects):
    """Write the objects as JSON documents, and return the path."""
    path.write_text("\n---\n".join(json.dumps(obj) for obj in objects))
    return path


def modes(*names):
    """Return the `-f` options for these files of manifests/examples/modes."""
    return [part for name in names for part in ("-f", MODES / f"{name}.yaml")]


@pytest.fixture
def empty_directory(tmp_path, monkeypatch):
    """An empty working directory. Commands that connect to a cluster reach an empty cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: Embedded())
    return tmp_path
