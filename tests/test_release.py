"""The parts of a release are made from HEAD and fit together, its workflow has few rights, and a new version is written everywhere at once."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from docs import release
from webhook.names import VERSION

ROOT = Path(__file__).parent.parent
WORKFLOW = (ROOT / ".github/workflows/release.yml").read_text()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return release.build(tmp_path_factory.mktemp("release") / "once", "https://example.org/download")


def test_the_repository_address_is_defined_once():
    templates = [
        "uses: {}/drawbridge@COMMIT",
        "gh attestation verify x --repo {}/drawbridge",
        "https://github.com/{}/drawbridge/security",
    ]
    site, owner, _ = release.repository().rsplit("/", 2)
    assert [release.with_owner(template.format("others")) for template in templates] == [
        template.format(owner) for template in templates
    ]
    other_text = f"{site}/others/kueue, uses: actions/checkout@v5, drawbridge/drawbridge"
    assert release.with_owner(other_text) == other_text
    addresses = subprocess.run(["git", "grep", "-hoE", f"{site}/[A-Za-z0-9_.-]+/drawbridge"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    assert set(addresses.stdout.split()) == {release.repository()}


def unpack(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {entry.name: (entry, tar.extractfile(entry).read()) for entry in tar if entry.isfile()}


def test_the_checksums_cover_all_files(files):
    checksums = dict(line.split("  ")[::-1] for line in files["SHA256SUMS"].decode().splitlines())
    assert checksums == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items() if name != "SHA256SUMS"
    }
    assert {name.partition("-")[0] for name in checksums} == {
        "drawbridge",
        "drawbridge.krew.yaml",
        "drawbridge_dra",
        "kubectl",
        "sbom.cdx.json",
    }


def test_chart_plugin_wheel_and_pins_have_the_release_version(files):
    chart = unpack(files[f"drawbridge-{VERSION}.tgz"])
    assert yaml.safe_load(chart["drawbridge/Chart.yaml"][1])["version"] == VERSION
    assert {"drawbridge/values.yaml", "drawbridge/values.schema.json", "drawbridge/templates/objects.yaml"} <= set(
        chart
    )
    plugin = unpack(files[f"kubectl-drawbridge-{VERSION}.tar.gz"])
    [wheel] = (name for name in plugin if name.endswith(".whl"))
    assert plugin[wheel][1] == files[wheel]
    assert set(plugin) == {wheel, "LICENSE", "kubectl-drawbridge", "requirements.runtime.lock"}
    assert [name for name, (entry, _) in plugin.items() if entry.mode & 0o111] == ["kubectl-drawbridge"]
    assert {entry.mtime for entry, _ in (*plugin.values(), *chart.values())} == {0}
    program = plugin["kubectl-drawbridge"][1]
    subprocess.run(["sh", "-n"], input=program, check=True, timeout=10)
    assert f"kubectl-drawbridge/{VERSION}\n" in program.decode()


def test_krew_verifies_the_archive_by_its_checksum(files):
    manifest = yaml.safe_load(files["drawbridge.krew.yaml"])
    [platform] = manifest["spec"]["platforms"]
    folder, _, name = platform["uri"].rpartition("/")
    assert folder == f"https://example.org/download/v{VERSION}"
    assert platform["sha256"] == hashlib.sha256(files[name]).hexdigest()
    assert platform["bin"] in unpack(files[name])
    assert manifest["spec"]["version"] == f"v{VERSION}"


def test_the_sbom_lists_every_pin_and_every_direct_go_module(files):
    parts = json.loads(files["sbom.cdx.json"])["components"]
    lock = (ROOT / "requirements.runtime.lock").read_text()
    pins = {tuple(line.split()[0].split("==")) for line in lock.splitlines() if "==" in line}
    assert {(part["name"], part["version"]) for part in parts if part["purl"].startswith("pkg:pypi/")} == pins
    assert sum(len(part.get("hashes", ())) for part in parts) == lock.count("--hash=sha256:")
    modules = {part["name"] for part in parts if part["purl"].startswith("pkg:golang/")}
    direct = re.findall(r"^\t(\S+) v\S+$", (ROOT / "bridge/go.mod").read_text(), re.MULTILINE)
    assert set(direct) <= modules
    assert len({part["bom-ref"] for part in parts}) == len(parts)


def test_a_release_that_is_not_reproducible_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "build", lambda scratch, _: {"SHA256SUMS": scratch.name.encode()})
    monkeypatch.setattr("sys.argv", ["release", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="two builds of one commit differ in: SHA256SUMS"):
        release.main()
    assert not (tmp_path / "out").exists()


@pytest.fixture
def checkout(tmp_path):
    for name in (*release.FILES_WITH_VERSION, "webhook/names.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_bump_changes_the_version_in_every_place(checkout):
    release.bump(checkout, "7.8.9", datetime(2030, 1, 2, tzinfo=UTC))
    assert 'VERSION = "7.8.9"' in (checkout / "webhook/names.py").read_text()
    log = (checkout / "CHANGELOG.md").read_text()
    assert f"## 7.8.9 (unreleased)\n\n## {VERSION} (2030-01-02)\n" in log
    for name in release.FILES_WITH_VERSION:
        text = (checkout / name).read_text()
        assert "7.8.9" in text, name
        assert f"drawbridge:{VERSION}" not in text
    listing = subprocess.run(
        ["git", "grep", "-lE", rf"drawbridge:{re.escape(VERSION)}|ag: {re.escape(VERSION)}"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert set(listing.stdout.split()) <= set(release.FILES_WITH_VERSION)


@pytest.mark.parametrize("version", ["0.0.1", VERSION, "1.0", "1.0.0rc1", "v1.0.0", ""])
def test_a_version_that_is_invalid_or_not_newer_changes_nothing(checkout, version):
    contents_before = {file: file.read_bytes() for file in checkout.rglob("*") if file.is_file()}
    with pytest.raises(SystemExit, match=r"not a version|does not come after"):
        release.bump(checkout, version, datetime(2030, 1, 2, tzinfo=UTC))
    assert {file: file.read_bytes() for file in contents_before} == contents_before


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
