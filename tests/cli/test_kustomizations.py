"""`translate --in-place` and `--undo` in repositories of several files, with a stand-in for kustomize or without it.

e2e/kubernetes/test_kustomizations.py has the tests with kustomize.
"""

import errno
import os
import sys

import pytest

from cli.trees import find_kustomizations
from cluster import manifests
from tests.cli.running import run
from tests.corpus.kustomizations import TREES, deployment


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository on a machine without kustomize."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    (tmp_path / ".git").mkdir()
    return tmp_path


# Builds a kustomization that only lists resources. A kustomization with the word "broken" does not build.
BUILDER = f"""#!{sys.executable}
import sys
from pathlib import Path
import yaml

def build(folder):
    text = Path(folder, "kustomization.yaml").read_text()
    if "broken" in text:
        sys.exit("Error: it is broken")
    for name in yaml.safe_load(text)["resources"]:
        if Path(folder, name).is_dir():
            build(Path(folder, name))
        else:
            print(Path(folder, name).read_text(), "---", sep="\\n")

build(sys.argv[-1])
"""


@pytest.fixture
def builder(repository, tmp_path_factory, monkeypatch):
    """A program that builds kustomizations, outside the repository."""
    program = tmp_path_factory.mktemp("bin") / "kustomize"
    program.write_text(BUILDER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def write_files(repository, files):
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    return texts(repository)


def texts(repository):
    return {str(path): path.read_text() for path in repository.rglob("*.yaml")}


def objects(path):
    return [document.object for document in manifests.read([path])]


def test_without_kustomize_no_kustomization_is_edited(repository):
    before = write_files(repository, TREES["base"].files | {"plain.yaml": deployment("plain")})
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (2, "plain.yaml: edited\n")
    assert "error: base/kustomization.yaml: neither kustomize nor kubectl is installed" in result.stderr
    assert "(install such a program" in result.stderr
    changed = {name for name, text in texts(repository).items() if before[name] != text}
    assert changed == {str(repository / "plain.yaml")}


def test_without_kustomize_a_translated_kustomization_is_no_problem(repository):
    write_files(repository, TREES["base"].files)
    text = deployment(limits="{cpu: 1}").replace("# kept", "# once nvidia.com/gpu: 1")
    (repository / "base" / "web.yaml").write_text(text)
    assert run("translate", "--in-place", ".").exit_code == 0


def test_outside_of_a_repository_other_folders_are_not_searched(repository):
    write_files(
        repository,
        {"one.yaml": deployment("one"), "other/kustomization.yaml": "namePrefix: a-\nresources: [../one.yaml]\n"},
    )
    assert [*find_kustomizations(["one.yaml"])] == [str(repository / "other")]
    (repository / ".git").rmdir()
    assert not find_kustomizations(["one.yaml"])
    assert run("translate", "--in-place", "one.yaml").stdout == "one.yaml: edited\n"


@pytest.mark.parametrize("options", [["--in-place"], ["-o", "diff"]])
def test_a_file_that_is_edited_with_its_kustomization_is_not_reported_as_skipped(repository, builder, options):
    write_files(
        repository,
        {
            "base/kustomization.yaml": "resources: [one.yaml]\npatches: [{path: replicas.yaml}]\n",
            "base/one.yaml": deployment("one"),
            "base/replicas.yaml": deployment("one", limits="{cpu: 1}"),
        },
    )
    result = run("translate", *options, ".")
    assert ("one.yaml" in result.stdout, "skipped" in result.stderr) == (True, False)


def test_an_unrelated_kustomization_does_not_stop_an_edit(repository):
    before = write_files(repository, TREES["prefix"].files | {"team/one.yaml": deployment("one")})
    result = run("translate", "--in-place", "team")
    assert (result.exit_code, result.stdout) == (0, "team/one.yaml: edited\n")
    assert {name for name, text in texts(repository).items() if before[name] != text} == {
        str(repository / "team/one.yaml")
    }


@pytest.mark.parametrize("linked_file", ["web.yaml", "kustomization.yaml"])
def test_nothing_is_read_or_written_through_a_link(repository, linked_file):
    write_files(repository, {f"repo/{name}": text for name, text in TREES["base"].files.items()})
    (repository / "repo" / ".git").mkdir()
    (repository / "repo" / "base" / linked_file).rename(repository / linked_file)
    (repository / "repo" / "base" / linked_file).symlink_to(repository / linked_file)
    before = texts(repository)
    result = run("translate", "--in-place", "repo")
    assert result.exit_code == 2
    assert f"base/{linked_file}" in result.stderr
    assert texts(repository) == before


def test_a_pipe_as_kustomization_does_not_block(repository):
    write_files(repository, {"web.yaml": deployment()})
    os.mkfifo(repository / "kustomization.yaml")
    assert run("translate", "--in-place", ".").exit_code == 0


def test_templates_are_named_after_their_workloads(repository):
    """Two workloads of one name have a template each."""
    second_a = deployment("a", kind="StatefulSet").replace("gpu: 1", "gpu: 2")
    write_files(repository, {"a.yaml": f"{deployment('a')}---\n{deployment('b')}", "b.yaml": second_a})
    run("translate", "--in-place", ".")
    named = [obj["metadata"]["name"] for file in ("a.yaml", "b.yaml") for obj in objects(repository / file)]
    assert named == ["a", "a", "b", "b", "a-2", "a"]
    assert "resourceClaimTemplateName: a-2" in (repository / "b.yaml").read_text()


def test_the_claims_of_several_containers_are_named_after_them(repository):
    second = "      - {name: side, image: i, resources: {limits: {nvidia.com/gpu: 2}}}\n"
    write_files(repository, {"a.yaml": deployment("a", more=second)})
    run("translate", "--in-place", ".")
    *templates, workload = objects(repository / "a.yaml")
    claims = workload["spec"]["template"]["spec"]["resourceClaims"]
    assert [claim["name"] for claim in claims] == ["main-gpu", "side-gpu"]
    assert [template["metadata"]["name"] for template in templates] == ["a-main-gpu", "a-side-gpu"]


def test_a_template_that_a_file_has_already_is_not_added_again(repository):
    write_files(repository, {"a.yaml": deployment("a")})
    run("translate", "--in-place", ".")
    edited = (repository / "a.yaml").read_text()
    (repository / "a.yaml").write_text(edited.partition("---\n")[0] + "---\n" + deployment("a"))
    run("translate", "--in-place", ".")
    assert (repository / "a.yaml").read_text() == edited


@pytest.mark.parametrize("system_call", ["fsync", "replace"])
def test_a_failed_write_leaves_every_file_unchanged(repository, system_call, monkeypatch):
    before = write_files(repository, {"a.yaml": deployment("a"), "b.yaml": deployment("b")})
    real_call = getattr(os, system_call)
    calls = []

    def fail_on_a_full_disk(*args, **options):
        if "src_dir_fd" in options or system_call == "fsync":
            calls.append(args)
        if len(calls) == (2 if system_call == "replace" else 4):  # fsync is also called twice for the files of --undo
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_call(*args, **options)

    monkeypatch.setattr(os, system_call, fail_on_a_full_disk)
    assert run("translate", "--in-place", ".").exit_code == 3
    assert calls
    assert texts(repository) == before
    assert sorted(path.name for path in repository.iterdir() if path.is_file()) == ["a.yaml", "b.yaml"]


def test_an_edit_interrupted_between_two_files_can_be_undone(repository):
    before = write_files(repository, {"a.yaml": deployment("a"), "b.yaml": deployment("b")})
    run("translate", "--in-place", ".")
    (repository / "b.yaml").write_text(before[str(repository / "b.yaml")])
    assert run("translate", "--undo", ".").exit_code == 0
    assert texts(repository) == before
    assert run("translate", "--undo", ".").stdout == "nothing to undo\n"


def test_undo_keeps_later_edits_of_other_lines(repository):
    before = write_files(repository, {"a.yaml": deployment("a")})[str(repository / "a.yaml")]
    run("translate", "--in-place", ".")
    edited = (repository / "a.yaml").read_text().replace("a:1", "a:2") + "# more\n"
    (repository / "a.yaml").write_text(edited)
    assert run("translate", "--in-place", ".").stdout == "nothing to edit\n"
    assert run("translate", "--undo", "a.yaml").exit_code == 0
    assert (repository / "a.yaml").read_text() == before.replace("a:1", "a:2") + "# more\n"


def test_undo_reports_a_conflicting_edit_and_restores_nothing(repository):
    write_files(repository, {"a.yaml": deployment("a"), "b.yaml": deployment("b")})
    run("translate", "--in-place", ".")
    (repository / "b.yaml").write_text((repository / "b.yaml").read_text().replace(": gpu.nvidia.com", ": other"))
    before = texts(repository)
    result = run("translate", "--undo", ".")
    assert result.exit_code == 1
    assert "b.yaml:11: error: not restored: this line was edited" in result.stderr
    assert texts(repository) == before


@pytest.mark.parametrize(("amount", "is_warned_of"), [("1", True), ("10", True), ("0", False), ("'0'  # none", False)])
def test_only_helm_values_that_request_devices_cause_a_warning(repository, amount, is_warned_of):
    write_files(repository, {"values.yaml": f"limits:\n  nvidia.com/gpu: {amount}\n"})
    result = run("translate", "--in-place", ".")
    assert result.exit_code == 0
    assert ("warning: values.yaml:2: nvidia.com/gpu in Helm values is not rewritten" in result.stderr) == is_warned_of


@pytest.mark.parametrize("command_of_hook", ["check -q", "translate --in-place"])
def test_the_values_of_a_chart_block_no_commit(repository, command_of_hook):
    write_files(repository, {"chart/Chart.yaml": "name: a\n", "chart/values.yaml": "limits: {nvidia.com/gpu: 1}\n"})
    result = run(*command_of_hook.split(), "--", "chart/values.yaml")
    assert result.exit_code == 0, result.output


TWO_FILE_KUSTOMIZATION = {
    ".git/HEAD": "",
    "base/kustomization.yaml": "resources: [a.yaml, more/b.yaml]\n",
    "base/a.yaml": deployment("a"),
    "base/more/b.yaml": deployment("b"),
}


@pytest.mark.usefixtures("builder")
def test_an_edit_includes_the_rest_of_the_kustomization(repository):
    before = write_files(
        repository,
        TWO_FILE_KUSTOMIZATION | {"other/kustomization.yaml": "resources: [c.yaml]\n", "other/c.yaml": deployment("c")},
    )
    shown = run("translate", "base/a.yaml", "other/kustomization.yaml", "-o", "diff")
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if line.startswith("diff ")] == [
        "diff --git a/base/a.yaml b/base/a.yaml",
        "diff --git a/base/more/b.yaml b/base/more/b.yaml",
    ]
    assert texts(repository) == before
    result = run("translate", "--in-place", "base/a.yaml", "other/kustomization.yaml")
    assert (result.exit_code, result.stdout) == (0, "base/a.yaml: edited\nbase/more/b.yaml: edited\n")
    assert texts(repository)[str(repository / "other/c.yaml")] == before[str(repository / "other/c.yaml")], (
        "other/c.yaml was edited, but neither it nor another file with requests of its kustomization was named"
    )
    assert run("translate", "--check", "base/a.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("files", "file", "reason"),
    [
        (TREES["a patch that raises the count"].files, "base/web.yaml", "base/kustomization.yaml: neither kustomize nor kubectl"),
        ({"web.yaml": TREES["a YAML anchor"].files["base/web.yaml"]}, "web.yaml", "web.yaml:1: cannot be edited in place: "),
    ],
    ids=["a kustomization that cannot be built", "a file that cannot be edited"],
)  # fmt: skip
def test_the_diff_of_what_cannot_be_edited_shows_its_objects(repository, files, file, reason):
    write_files(repository, files)
    result = run("translate", "-f", file, "-o", "diff")
    assert result.exit_code == 1
    assert "+++ b/Deployment/default/web" in result.stdout
    assert "+      - name: drawbridge-main-gpu" in result.stdout
    assert f"warning: {reason}" in result.stderr


@pytest.mark.parametrize("tree", ["a JSON patch of the count and of replicas", "a YAML anchor"])
def test_a_hook_fails_if_a_changed_file_cannot_be_edited(repository, tree):
    before = write_files(repository, TREES[tree].files)
    result = run("translate", "--in-place", "--", "base/web.yaml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: base/" in result.stderr
    assert texts(repository) == before


def test_an_incomplete_edit_counts_the_edited_files(repository):
    write_files(repository, TREES["a YAML anchor"].files | {f"{name}.yaml": deployment(name) for name in "abcde"})
    result = run("translate", "-q", "--in-place", "-o", "json", ".")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("in the input (see above): 5 files edited, the others not")


@pytest.mark.parametrize("output_format", ["diff", "yaml"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the input holds no objects"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "nothing changes: 1 object read, and none requests"),
        (
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {drawbridge.dev/mode: observe}}\n---\n"
            + deployment("a"),
            "nothing changes: devices are requested in 1 of 2 objects; `-o report` gives each reason",
        ),
    ],
    ids=["no objects", "no device request", "mode observe"],
)
def test_without_changes_a_warning_gives_the_reason(repository, output_format, text, reason):
    write_files(repository, {"a.yaml": text})
    result = run("translate", "-f", "a.yaml", "-o", output_format)
    assert result.exit_code == 0
    assert result.stderr.count(f"warning: {reason}") == 1
    assert output_format == "yaml" or not result.stdout
    assert not run("translate", "-q", "-f", "a.yaml", "-o", output_format).stderr


@pytest.mark.usefixtures("builder")
def test_a_long_text_in_a_kustomization_is_no_path(repository):
    text = "a" * 300
    write_files(
        repository,
        {
            "kustomization.yaml": f"resources: [web.yaml]\nimages: []\nvars: [{text}, k={text}, {text}/{text}]\nvaluesInline: {{a: {text}}}\n",
            "web.yaml": deployment(),
        },
    )
    assert [*find_kustomizations(["."])] == [str(repository)]
    result = run("translate", "-f", "web.yaml", "-o", "diff")
    assert (result.exit_code, "is outside of the repository" in result.stderr) == (0, False), result.stderr


@pytest.mark.usefixtures("builder")
def test_an_overlay_with_a_path_out_of_the_repository_is_named_and_the_others_are_edited(repository):
    """The fixture's program would read the file, and its error message would quote the file."""
    (repository.parent / "secret.yaml").write_text("s3cr3t\n")
    write_files(repository, OVERLAYS | {"test/kustomization.yaml": "resources:\n- ../base\n- ../../secret.yaml\n"})
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (2, "base/web.yaml: edited\n")
    assert "error: test/kustomization.yaml:3: ../../secret.yaml is outside of the repository" in result.stderr
    assert "s3cr3t" not in result.stderr


OVERLAYS = {
    "base/kustomization.yaml": "resources:\n- web.yaml\n",
    "base/web.yaml": deployment(),
    "prod/kustomization.yaml": "resources:\n- ../base\n",
    "test/kustomization.yaml": "resources:\n- ../base\n# broken\n",
}


@pytest.mark.usefixtures("builder")
def test_an_overlay_that_does_not_build_is_named_and_the_others_are_edited(repository):
    before = write_files(repository, OVERLAYS)
    problem = "test/kustomization.yaml: kustomize: Error: it is broken: its objects before and after the edit were not compared"
    shown = run("translate", ".", "-o", "diff")
    assert shown.exit_code == 0, shown.output
    assert f"warning: {problem}" in shown.stderr
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (2, "base/web.yaml: edited\n")
    assert f"error: {problem}" in result.stderr
    assert {name for name, text in texts(repository).items() if text != before[name]} == {
        str(repository / "base/web.yaml")
    }


@pytest.mark.usefixtures("builder")
def test_nothing_is_edited_if_no_kustomization_of_a_file_builds(repository):
    before = write_files(
        repository, {"kustomization.yaml": "resources:\n- web.yaml\n# broken\n", "web.yaml": deployment()}
    )
    result = run("translate", "--in-place", ".")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "it is broken" in result.stderr
    assert texts(repository) == before
