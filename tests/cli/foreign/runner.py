"""Runs the GitHub action of action.yml as a runner of GitHub does."""

import os
import re
import subprocess
from pathlib import Path

from cluster.manifests.yaml_reader import load

ROOT = Path(__file__).parents[3]
ACTION = load((ROOT / "action.yml").read_bytes())[0]
BAD_MANIFEST = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: B_A_D}\nspec: {}\n"
GOOD_MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n"


def run_action(workspace, python, search_path=os.environ["PATH"], job_environment=(), **inputs):
    """Run the script of the action with these inputs; return the ended process."""
    input_values = {name: field["default"] for name, field in ACTION["inputs"].items()} | inputs
    temporary = workspace.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    expression_values = {f"inputs.{name}": value for name, value in input_values.items()}
    expression_values["steps.python.outputs.python-path"] = str(python)
    [step] = [step for step in ACTION["runs"]["steps"] if "run" in step]
    env = {
        name: re.sub(r"\$\{\{ (.+?) \}\}", lambda match: expression_values[match.group(1)], text)
        for name, text in step["env"].items()
    }
    script = temporary / "step.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script],
        cwd=workspace,
        env={
            **dict(job_environment),
            "PATH": search_path,
            "RUNNER_TEMP": str(temporary),
            "GITHUB_ACTION_PATH": str(ROOT),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )


def nothing_ran(workspace):
    """Return True if nothing in the workspace was executed, and otherwise the record of the executions."""
    record = workspace.parent / "ran"
    return not record.exists() or record.read_text()
