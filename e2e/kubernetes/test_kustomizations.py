"""Repositories of kustomizations are translated in place, and kustomize itself builds them before and after."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from analysis.gitops import Tree
from cluster import manifests
from e2e.build import program
from tests.cli.running import run
from tests.corpus.kustomizations import TREES, UNBUILT
from webhook.names import ANNOTATIONS

pytestmark = pytest.mark.real  # kubectl and helm are built with Go

KIND = "ResourceClaimTemplate"


@pytest.fixture(scope="module", autouse=True)
def _kubectl(tmp_path_factory):
    """Put the pinned kubectl and helm on PATH, and keep the command's state apart."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("bin")
        for name in ("kubectl", "helm"):
            (folder / name).symlink_to(program(name))
        patch.setenv("PATH", str(folder))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield


def written(tree, folder):
    (folder / ".git").mkdir()
    for name, text in tree.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def texts(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def built(folder):
    done = subprocess.run([program("kubectl"), "kustomize", folder], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def requests_of(objects):
    """Return the keys and amounts that the pod templates of objects request."""
    templates = [obj["spec"]["template"]["spec"] for obj in objects if "template" in (obj.get("spec") or {})]
    limits = [part["resources"]["limits"] for spec in templates for part in spec["containers"]]
    return sorted((key, str(amount)) for of_one in limits for key, amount in of_one.items() if "/" in key)


@pytest.mark.parametrize("name", [name for name in TREES if "patch" in name or "component" in name])
def test_patches_change_requests_as_kustomize_does(name, tmp_path, monkeypatch):
    written(TREES[name], tmp_path)
    monkeypatch.chdir(tmp_path)
    documents, others = manifests.read_leniently(["."])
    made = [part.document.object for part in Tree(documents, lambda file: f"/{file}", lambda _: "", others).patched]
    is_of_flux = (tmp_path / "flux.yaml").exists()  # its patches are not in the build of the folder
    built_objects = [document.object for document in manifests.parse(built(tmp_path / "prod"))]
    assert is_of_flux or requests_of(made) == requests_of(built_objects)
    assert made, "the patches select an object"


def number_claims(value):
    """Give the claims of each pod numbers as names, because claims in files have other names than those that the webhook adds."""
    if isinstance(value, list):
        for item in value:
            number_claims(item)
    if not isinstance(value, dict):
        return
    if entries := value.get("resourceClaims"):
        numbers = {entry["name"]: f"claim-{number}" for number, entry in enumerate(entries)}
        containers = [*(value.get("initContainers") or []), *value["containers"]]
        claims = [claim for container in containers for claim in container["resources"].get("claims") or []]
        for named in (*entries, *claims):
            named["name"] = numbers[named["name"]]
    for member in value.values():
        number_claims(member)


def pods(text):
    """Return the texts of a build's objects: template specs replace template names, and our records, empty fields and defaults are omitted."""
    objects = [document.object for document in manifests.parse(text)]
    number_claims(objects)
    specs = {obj["metadata"]["name"]: obj["spec"] for obj in objects if obj["kind"] == KIND}
    texts = []
    for obj in objects:
        if obj["kind"] == KIND:
            continue
        text_ = json.dumps(obj, sort_keys=True)
        named = set(re.findall('"resourceClaimTemplateName": "([^"]*)"', text_))
        for name in named:
            text_ = text_.replace(f'"resourceClaimTemplateName": "{name}"', json.dumps(specs[name], sort_keys=True))
        for name in ANNOTATIONS:
            text_ = re.sub(rf'"{name}": "(\\.|[^"\\])*"(, )?', "", text_)
        for empty in (
            '"allocationMode": "ExactCount", ',
            '"count": 1, ',
            '"annotations": {}, ',
            '"limits": {}, ',
            ', "limits": {}',
            '"limits": {}',
            "null",
        ):
            text_ = text_.replace(empty, "")
        texts.append(text_)
    return sorted(texts)


EDITED = {name: tree for name, tree in TREES.items() if not tree.by_hand}


class Edited(NamedTuple):
    """Trees before and after one command edited all of them."""

    before: Path
    after: Path


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    both = Edited(tmp_path_factory.mktemp("before"), tmp_path_factory.mktemp("after"))
    for folder in both:
        for name, tree in EDITED.items():
            (folder / name).mkdir()
            written(tree, folder / name)
    done = run("translate", "--in-place", both.after)
    assert done.exit_code == 0, done.stderr
    return both


@pytest.mark.parametrize("name", EDITED)
def test_a_kustomization_edited_in_place_builds_its_translation(name, edited):
    for overlay in EDITED[name].overlays:
        translated = run("translate", "-f", "-", stdin=built(edited.before / name / overlay)).stdout
        assert "deviceClassName" in translated
        assert pods(built(edited.after / name / overlay)) == pods(translated)


@pytest.mark.parametrize("name", EDITED)
def test_only_lines_that_request_devices_are_removed(name, edited):
    after = texts(edited.after / name)
    for file, text in texts(edited.before / name).items():
        gone = set(text.split(b"\n")) - set(after[file].split(b"\n"))
        assert all(re.search(b"nvidia.com(/|~1)gpu|resources|limits", line) for line in gone), gone


def test_a_second_edit_changes_nothing_and_undo_restores_all_files(edited, tmp_path):
    assert run("translate", "--check", edited.before / "base").exit_code == 1
    again = shutil.copytree(edited.after, tmp_path / "again")
    assert run("translate", "--check", again).exit_code == 0
    assert run("translate", "--undo", edited.after).exit_code == 0
    assert texts(edited.after) == texts(edited.before)


@pytest.mark.parametrize("name", [name for name, tree in TREES.items() if tree.by_hand])
def test_a_tree_that_cannot_be_edited_is_unchanged_and_reported(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = TREES[name]
    written(tree, tmp_path)
    first = texts(tmp_path)
    done = run("translate", "--in-place", ".")
    assert done.exit_code == tree.exit_code
    assert texts(tmp_path) == first
    for place in tree.by_hand:
        assert f"{place}: " in done.stderr, done.stderr
    assert not [place for place in tree.unreported if place in done.stderr]


@pytest.mark.parametrize("name", UNBUILT)
def test_an_overlay_that_does_not_build_is_reported_and_its_base_is_edited(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = UNBUILT[name]
    written(tree, tmp_path)
    first = texts(tmp_path)
    done = run("translate", "--in-place", ".")
    assert (done.exit_code, done.stdout) == (2, "base/web.yaml: edited\n")
    assert [file for file, text in texts(tmp_path).items() if text != first[file]] == ["base/web.yaml"]
    assert "helmCharts" not in tree.files["prod/kustomization.yaml"] or "a build runs no Helm" in done.stderr
    for place in tree.by_hand:
        assert f"{place}: " in done.stderr, done.stderr
    again = run("translate", "--in-place", ".")
    assert (again.exit_code, again.stdout) == (0, "nothing to edit\n")


@pytest.mark.parametrize("name", EDITED)
def test_the_diff_of_one_file_includes_dependent_files(name, tmp_path, monkeypatch):
    """`-o diff` changes no file, so the other files need not be named."""
    monkeypatch.chdir(tmp_path)
    written(EDITED[name], tmp_path)
    asking = sorted(file for file in texts(tmp_path) if b"nvidia.com" in (tmp_path / file).read_bytes())
    whole = run("translate", ".", "-o", "diff")
    assert whole.exit_code == 0, whole.stderr
    diffs = [run("translate", file, "-o", "diff") for file in asking if file.endswith((".yaml", ".yml"))]
    assert {diff.exit_code for diff in diffs} == {0}
    for diff in diffs:
        assert diff.stdout in {whole.stdout, ""} or set(diff.stdout.splitlines()) <= set(whole.stdout.splitlines())
    assert any(diff.stdout == whole.stdout for diff in diffs), [diff.stderr for diff in diffs]


def test_in_place_also_edits_the_other_files_of_a_kustomization(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(TREES["a patch that raises the count"], tmp_path)
    before = texts(tmp_path)
    done = run("translate", "--in-place", "base/web.yaml")
    assert done.exit_code == 0
    edited = {file for file, text in texts(tmp_path).items() if text != before.get(file)}
    assert {line.removesuffix(": edited") for line in done.stdout.splitlines()} == edited
    assert edited == {
        "base/web.yaml",
        "prod/gpus.yaml",
        "prod/kustomization.yaml",
        "prod/resource-claim-templates.yaml",
    }
    assert run("translate", "--undo", ".").exit_code == 0
    assert texts(tmp_path) == before
