"""The action in an untrusted workspace: nothing in the workspace is executed, and every named path is checked."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.foreign.runner import ACTION, BAD_MANIFEST, GOOD_MANIFEST, ROOT, nothing_ran, run_action

# Python and pip read these variables at startup, and the job of a user may have set them.
STARTUP_VARIABLES = {
    "PYTHONPATH": ".:drawbridge",
    "PYTHONHOME": ".",
    "PYTHONSTARTUP": "conftest.py",
    "PYTHONUSERBASE": ".",
    "PYTHONWARNINGS": "error::conftest.Odd",
    "PYTHONBREAKPOINT": "conftest.odd",
    "PYTHONINSPECT": "1",
    "VIRTUAL_ENV": ".",
    "PIP_CONFIG_FILE": "pip.conf",
}


def test_the_action_checks_each_path_and_executes_nothing_of_the_pull_request(workspace, python):
    (workspace / "lib").symlink_to(workspace)  # with PYTHONHOME=., Python would import from ./lib
    files_before = sorted(workspace.rglob("*"))
    result = run_action(workspace, python, job_environment=STARTUP_VARIABLES, paths="good.yaml\n\n./bad.yaml\n")
    assert nothing_ran(workspace) is True
    assert sorted(workspace.rglob("*")) == files_before
    [setup] = [step for step in ACTION["runs"]["steps"] if "uses" in step]
    assert setup["with"]["update-environment"] is False
    assert result.returncode == 1, result.stderr
    assert "::error file=bad.yaml,line=3," in result.stdout
    # The action installs pinned packages outside of the workspace.
    working_directory, isolated, *arguments = (workspace.parent / "pip").read_text().splitlines()
    assert not Path(working_directory).is_relative_to(workspace)
    assert isolated == "1"
    assert "--require-hashes" in arguments
    assert arguments[arguments.index("--only-binary") + 1] == ":all:"
    assert arguments[arguments.index("--requirement") + 1] == f"{ROOT}/requirements.runtime.lock"
    # Nothing is installed from a repository or a folder; the only path is that of the lock file.
    assert not any(argument.startswith(("-e", "git+", "/")) and "lock" not in argument for argument in arguments[1:])
    used_actions = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert [action for action in used_actions if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)] == []


def test_a_python_without_isolation_imports_modules_of_the_workspace(workspace):
    """This test proves that the fixture `workspace` detects an import."""
    subprocess.run([sys.executable, "-m", "pip"], cwd=workspace, check=False, capture_output=True)
    assert nothing_ran(workspace) is not True


def test_scripts_of_the_action_contain_no_expression_and_no_token():
    text = (ROOT / "action.yml").read_text()
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    assert set(re.findall(r"\$\{\{ (\w+)\.", text)) == {"inputs", "steps"}
    assert not re.search(r"GITHUB_(ENV|PATH|OUTPUT|TOKEN)|github\.token|secrets\.\w+ \}\}", text)


HOSTILE_FILE_NAMES = (
    "with blank.yaml",
    " before.yaml",
    "after.yaml ",
    "-x.yaml",
    "--fail-on=never.yaml",
    "-k",
    "-",
    "*.yaml",
    "$(touch ..%ran).yaml",
    "`touch ran`.yaml",
    'quote".yaml',
    "quote'.yaml",
    "back\\slash.yaml",
    "semi;touch ran.yaml",
    "kustomize:x.yaml",
    "~.yaml",
    "${{ github.token }}.yaml",
    "ä.yaml",
)


@pytest.mark.whole
def test_a_file_of_any_name_is_checked_as_file(workspace, python):
    for name in HOSTILE_FILE_NAMES:
        (workspace / name).write_text(BAD_MANIFEST)
    result = run_action(workspace, python, paths="\n".join(HOSTILE_FILE_NAMES))
    assert result.returncode == 1, result.stderr
    annotated = re.findall(r"^::error file=(.*?),line=3,", result.stdout, re.MULTILINE)
    assert annotated == [
        name.replace("%", "%25").replace(":", "%3A").replace(",", "%2C") for name in HOSTILE_FILE_NAMES
    ]
    assert nothing_ran(workspace) is True
    assert not (workspace / "ran").exists()


@pytest.mark.whole
def test_each_line_of_the_inventory_input_is_a_path(workspace, python):
    (workspace / "-i n.yaml").write_text(GOOD_MANIFEST)
    result = run_action(workspace, python, paths="good.yaml", inventory="good.yaml\n-i n.yaml\n")
    assert result.returncode == 0, result.stderr
    result = run_action(workspace, python, paths="good.yaml", inventory="good.yaml\nmissing.yaml\n")
    assert result.returncode == 2
    assert "missing.yaml" in result.stdout


@pytest.mark.whole
@pytest.mark.parametrize("paths", ["\n", "good.yaml bad.yaml", "https://127.0.0.1:1/a.yaml"])
def test_invalid_paths_fail_the_job(workspace, python, paths):
    result = run_action(workspace, python, paths=paths)
    assert result.returncode == 2
    # "Error: " or "error: ".
    lines = [line for line in result.stdout.splitlines() if "rror: " in line and "see above" not in line]
    assert len(lines) == 1


@pytest.mark.whole
def test_text_quoted_from_the_workspace_becomes_no_workflow_command(workspace, python):
    """The runner executes lines that begin with ::, and commands that begin with ##[ anywhere in a line.

    Between a line with a random token that stops commands and the line that resumes them, it executes none.
    """
    (workspace / "##[stop-commands]x.yaml").write_text("{apiVersion")
    (workspace / "::add-mask::a.yaml").write_text("{apiVersion")
    (workspace / "named.yaml").write_text(
        BAD_MANIFEST.replace("DeviceClass", '"::set-output name=a::b\\n::add-mask::c"')
    )
    result = run_action(workspace, python, paths=".")
    assert result.returncode == 2
    stop_line, resume_line = [
        i for i, line in enumerate(result.stdout.splitlines()) if re.search(r"[0-9a-f]{32}", line)
    ]
    lines = result.stdout.splitlines()
    token = lines[stop_line].removeprefix("::stop-commands::")
    assert lines[resume_line] == f"::{token}::"
    executed_lines = lines[:stop_line] + lines[resume_line + 1 :]
    assert executed_lines
    assert all(
        re.match(r"::(error|warning|notice) (file=[^:,]+,line=\d+,col=\d+,)?title=([A-Z]\d+|unreadable)::", line)
        for line in executed_lines
    )


# The runner splits lines at the first three texts, and other readers of a log also at the following ones. The last makes a terminal
# overwrite the line.
LINE_ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\x1b[2K\x1b[1G")


def test_no_file_name_forges_a_line_of_the_log(workspace, python):
    texts = (BAD_MANIFEST, "{apiVersion", GOOD_MANIFEST.replace("fine", "a\n::error::b") + "data: 3\n")
    for number, (line_end, text) in enumerate(itertools.product(LINE_ENDS, texts)):
        folder = workspace / f"{number}{line_end}::set-env name=PATH::"
        folder.mkdir()
        (folder / f"a{line_end}::error::forged.yaml").write_text(text)
    for number, text in enumerate(texts):
        (workspace / os.fsdecode(b"\xff\n::error::forged%d.yaml" % number)).write_text(text)
    result = run_action(workspace, python, paths=".")
    assert result.returncode in {1, 2}
    assert result.stderr == ""
    lines = re.split(r"\r\n|[\n\r\x0b\x0c\x85\u2028]", result.stdout)
    stop_line, resume_line = [i for i, line in enumerate(lines) if re.search(r"[0-9a-f]{32}", line)]
    executed_lines = lines[:stop_line] + lines[resume_line + 1 :]
    assert all(
        re.match(r"::error (file=[^:,]+,line=\d+,col=\d+,)?title=([A-Z]\d+|unreadable)::", line)
        for line in executed_lines
        if line
    )
    assert [line for line in lines if line.startswith("::set-env")] == []
    assert "\x1b" not in result.stdout


@pytest.mark.whole
def test_a_configuration_in_the_pull_request_cannot_hide_errors(workspace, python):
    secret = workspace.parent / "secret.yaml"
    secret.write_text("SECRET: 1\n")
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    (workspace / "drawbridge.yaml").symlink_to(secret)
    (workspace / "configuration.yaml").write_text(f"{head}mode: 'off'\nevidence: ../secret.yaml\nfail-on: never\n")
    result = run_action(workspace, python)
    assert result.returncode == 2
    assert "::error file=bad.yaml,line=3," in result.stdout
    assert "unknown field 'fail-on'" in result.stdout
    assert "SECRET" not in result.stdout
    assert nothing_ran(workspace) is True
