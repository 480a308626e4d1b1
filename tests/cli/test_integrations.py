"""The pre-commit hooks and the GitHub Action name commands and options that exist."""

import re
import shlex
from pathlib import Path

import pytest

from cli.main import command_of
from cluster.manifests.yaml_reader import load

ROOT = Path(__file__).parents[2]
HOOKS = load((ROOT / ".pre-commit-hooks.yaml").read_bytes())[0]
ACTION = load((ROOT / "action.yml").read_bytes())[0]


def options_of(name):
    return {text for parameter in command_of(name).params for text in parameter.opts}


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_each_hook_uses_options_of_its_command(hook):
    python, isolated_option, module_option, module, name, *options = shlex.split(hook["entry"])
    assert (python, isolated_option, module_option, module) == ("python", "-I", "-m", "cli.main")
    assert set(options) <= options_of(name)
    assert {"id", "name", "entry", "language"} <= hook.keys()


def test_the_action_calls_check_with_existing_options():
    scripts = [step.get("run", "") for step in ACTION["runs"]["steps"]]
    assert not [script for script in scripts if "${{" in script]
    [call] = re.findall(r"-m cli\.main check (.+) > ", " ".join(scripts).replace("\\\n", ""))
    assert set(re.findall(r"--[a-z-]+|-o", call)) == {"--fail-on", "-o"}
    options = re.findall(r"each option (--[a-z]+)=", " ".join(scripts))
    assert {"--fail-on", "-o", *options} <= options_of("check")
    inputs_used = re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text())
    assert set(inputs_used) == set(ACTION["inputs"])


def test_the_page_shows_existing_hooks_options_and_inputs():
    page = (ROOT / "docs/commands.md").read_text().partition("\n### In CI\n")[2].partition("\n## ")[0]
    workflow, hooks = (load(block.encode())[0] for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    [*_, step] = workflow["jobs"]["check"]["steps"]
    assert step["with"].keys() <= ACTION["inputs"].keys()
    hooks_by_id = {hook["id"]: hook for hook in HOOKS}
    for hook_shown in hooks["repos"][0]["hooks"]:
        name = shlex.split(hooks_by_id[hook_shown["id"]]["entry"])[4]
        options = [text.partition("=")[0] for text in hook_shown.get("args", ["--"]) if text.startswith("-")]
        assert options[-1] == "--"
        assert set(options[:-1]) <= options_of(name)
