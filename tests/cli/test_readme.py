"""The commands of README, then those of docs/commands.md, run in their order and print the expected facts."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from cluster import manifests
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from tests.cli.running import run

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/drawbridge"


def shell_lines(page, chapter):
    """Return the lines of a chapter's `sh` blocks, each split into words."""
    text = (ROOT / page).read_text().partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


def test_the_commands_of_the_pages_run_one_after_another(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "manifests/examples", tmp_path / "manifests/examples")
    fleet = [document.object for document in manifests.read([ROOT / "manifests/examples/fleet"])]

    def connect(**_):
        cluster = Embedded()
        cluster.load(fleet)
        return cluster

    monkeypatch.setattr(Kubernetes, "connect", connect)
    monkeypatch.chdir(tmp_path)
    results = {}
    lines = [*shell_lines("README.md", "Try it"), *shell_lines("docs/commands.md", "On files")]
    assert len(lines) > len(shell_lines("README.md", "Try it")) > 0
    for command, *arguments in lines:
        if command == "cp":
            shutil.copy(*arguments)
            continue
        if command == "kubectl":
            assert arguments[-2:] == [">", "dump.yaml"]
            continue
        assert command == PROGRAM
        result = run(*arguments)
        assert result.exit_code in (0, 1), (arguments, result.output)
        assert "Traceback" not in result.output
        results.setdefault(arguments[0], result)
    # The commands give one answer for the file: a claim for shares of two GPUs.
    translation = results["translate"].stdout
    assert re.search(r"^-.*nvidia.com/gpu: ", translation, re.MULTILINE)
    device_class = re.search(r"^\+\s+deviceClassName: (\S+)$", translation, re.MULTILINE)[1]
    assert f"1 {device_class}, 30 cores, 3000Mi memory" in results["demo"].stdout
    assert "0 errors" in results["check"].stdout


@pytest.mark.parametrize("example", ["hami-shares", "nvidia-training", "nvidia-mig", "never-too-many"])
def test_the_commands_of_the_readme_give_one_answer_about_a_manifest(example, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "manifests/examples", tmp_path / "manifests/examples")
    shutil.copy(ROOT / f"manifests/examples/pods/{example}.yaml", tmp_path / "app.yaml")
    monkeypatch.chdir(tmp_path)
    lines = shell_lines("README.md", "Try it")
    results = {words[1]: run(*words[1:]) for words in lines if words[0] == PROGRAM and "app.yaml" in words}
    assert results.keys() == {"translate", "check", "demo"}
    demo = results["demo"].stdout
    is_translated = bool(re.search(r"^    claims ", demo, re.MULTILINE)) and "    outcome  served" not in demo
    is_refused = bool(re.search(r"^✗", demo, re.MULTILINE))
    assert bool(re.search(r"^\+.*resourceClaims:", results["translate"].stdout, re.MULTILINE)) == is_translated
    assert (results["translate"].exit_code, results["check"].exit_code) == (is_refused, is_refused)
