"""Runs the action as a runner does."""

import os
import re
import subprocess
from pathlib import Path

from cluster.manifests.yaml_reader import load

ROOT = Path(__file__).parents[3]
ACTION = load((ROOT / "action.yml").read_bytes())[0]
BAD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: B_A_D}\nspec: {}\n"
GOOD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n"


def act(workspace, python, search=os.environ["PATH"], job=(), **inputs):
    """Run the steps of the action; `job` is the environment of the job."""
    given = {name: field["default"] for name, field in ACTION["inputs"].items()} | inputs
    temporary = workspace.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    known = {f"inputs.{name}": value for name, value in given.items()}
    known["steps.python.outputs.python-path"] = str(python)
    [step] = [step for step in ACTION["runs"]["steps"] if "run" in step]
    env = {
        name: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: known[match.group(1)], text)
        for name, text in step["env"].items()
    }
    script = temporary / "step.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
        cwd=workspace,
        env={**dict(job), "PATH": search, "RUNNER_TEMP": str(temporary), "GITHUB_ACTION_PATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
    )


def nothing_ran(workspace):
    ran = workspace.parent / "ran"
    return not ran.exists() or ran.read_text()
