"""The workflow of a release has few rights, and every page has one address of the repository."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
WORKFLOW = (ROOT / ".github/workflows/release.yml").read_text()


def test_every_page_has_the_same_repository_address():
    addresses = subprocess.run(["git", "grep", "-hoE", "https://github.com/[A-Za-z0-9_.-]+/drawbridge"], cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    assert set(addresses.stdout.split()) == {declared}


def test_the_release_workflow_pins_actions_and_limits_permissions():
    workflow = yaml.safe_load(WORKFLOW)
    assert workflow["permissions"] == {}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used_actions = re.findall(r"uses: (\S+)(.*)", WORKFLOW)
    assert len(used_actions) == sum("uses" in step for step in steps) > 5
    assert [
        action
        for action in used_actions
        if not re.search(r"@[0-9a-f]{40}$", action[0]) or not re.match(r"  # v\d", action[1])
    ] == []
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == [], (
        "a script contains an expression of the workflow"
    )
    assert {name for name, job in workflow["jobs"].items() if "write" in job["permissions"].values()} == {
        "image",
        "publish",
    }
    assert all(workflow["jobs"][name]["environment"] == "release" for name in ("image", "publish"))
    assert all("timeout-minutes" in job and job["permissions"] for job in workflow["jobs"].values())
    assert all(not step["with"].get("persist-credentials") for step in steps if "checkout" in step.get("uses", ""))
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(step.get("run", "") for step in steps))) <= set(targets)


def test_the_kind_workflow_uses_pinned_actions_and_existing_scripts():
    text = (ROOT / ".github/workflows/smoke.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    [job] = workflow["jobs"].values()
    assert job["permissions"] == {"contents": "read"}
    assert job["timeout-minutes"] <= 30
    actions_of_release = re.findall(r"uses: (\S+@[0-9a-f]{40})  # v\d", WORKFLOW)
    actions = re.findall(r"uses: (\S+)", text)
    assert actions
    assert set(actions) <= set(actions_of_release), "an action is not used by release.yml at the same commit"
    scripts = re.findall(r"e2e/kind/\w+", text)
    assert scripts == ["e2e/kind/up", "e2e/kind/smoke"]
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)
    files = set(re.findall(r"e2e/kind/\w+\.yaml", (ROOT / "e2e/kind/smoke").read_text()))
    assert files == {"e2e/kind/smoke.yaml", "e2e/kind/pod.yaml"}
    assert all((ROOT / file).is_file() for file in files)


def test_the_images_have_no_shell_and_a_non_root_user():
    text = (ROOT / "Dockerfile").read_text()
    for stage in text.split("\nFROM ")[1:]:
        if "ENTRYPOINT" in stage:
            assert stage.split()[0] in ("scratch", "${RUNTIME}")
            assert "USER 65532:65532" in stage
            assert "RUN " not in stage
    assert re.search(r"^ARG RUNTIME=\S+distroless\S+:nonroot$", text, re.MULTILINE)
