"""The pre-commit hooks and the command execute nothing of an untrusted repository. Ordinary repositories pass hooks and action."""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from cluster.manifests.yaml_reader import load
from tests.cli.foreign.runner import BAD_MANIFEST, ROOT, nothing_ran, run_action
from tests.corpus.trees import TREES, write_tree

BIN = Path(sys.executable).parent
HOOKS = load((ROOT / ".pre-commit-hooks.yaml").read_bytes())[0]


def write_ordinary_repository(folder):
    """Write a repository with an application, a chart and an overlay without errors; return the manifests as git lists them."""
    (folder / "bad.yaml").unlink()
    for name in ("application", "chart", "overlay"):
        write_tree({file: text for file, text in TREES[name].items() if "# refused" not in text}, folder / name)
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".json")
    )


@pytest.mark.whole
def test_an_ordinary_repository_passes_the_action(workspace, python):
    write_ordinary_repository(workspace)
    result = run_action(workspace, python)
    assert result.returncode == 0, result.stdout
    assert "::error" not in result.stdout
    assert nothing_ran(workspace) is True


@pytest.mark.whole
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_an_ordinary_repository_passes_the_hooks(hook, workspace, renderers):
    files = write_ordinary_repository(workspace)
    if "types" in hook:  # this hook gets only YAML files
        files = [file for file in files if not file.endswith(".json")]
    entry = [*shlex.split(hook["entry"]), *hook["args"], *files]
    # The hook of `translate` runs kustomize and helm, which not every machine has.
    programs = [BIN, renderers] if "translate" in hook["id"] else [BIN]
    env = {"PATH": os.pathsep.join(map(str, [*programs, os.environ["PATH"]]))}
    result = subprocess.run(entry, cwd=workspace, env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert nothing_ran(workspace) is True


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_executes_nothing_of_the_checked_repository(workspace, hook):
    (workspace / "-x.yaml").write_text(BAD_MANIFEST)
    (workspace / "-kcli").mkdir()
    (workspace / "-kcli" / "y.yaml").write_text(BAD_MANIFEST)
    entry = [*shlex.split(hook["entry"]), *hook["args"], "bad.yaml", "-x.yaml", "-kcli/y.yaml"]
    env = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONSTARTUP": "conftest.py",
        "PYTHONPATH": f".{os.pathsep}",
    }
    result = subprocess.run(entry, cwd=workspace, env=env, capture_output=True, text=True, check=False)
    assert nothing_ran(workspace) is True
    if hook["id"] == "drawbridge-check":
        assert result.returncode == 1, result.stderr
        for name in ("bad.yaml", "-x.yaml", "-kcli/y.yaml"):
            assert f"  {name}:3:12: error D102" in result.stdout
    else:
        assert result.returncode == 0, result.stderr


def test_the_command_imports_nothing_from_its_working_directory(workspace):
    result = subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "drawbridge", "check", "bad.yaml"],
        cwd=workspace,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1, result.stderr
    assert nothing_ran(workspace) is True
