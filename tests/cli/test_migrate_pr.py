"""`drawbridge migrate pr`: the commits, the branch, and the comparison of builds, with small steps in place of the real ones."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from analysis.migration import commits
from analysis.migration.pull_request import Edit, NewFile, Step
from cli import compared, trees
from tests.analysis.migration.test_consumers import several, with_component
from tests.cli.running import run, run_json
from tests.cli.test_migrate_plan import K36, TWO_APPS, TWO_NODES, app, plugin, without_place
from tests.cli.test_migrate_plan import OPERATOR as GPU_OPERATOR

KUSTOMIZATION = "apps/plex/kustomization.yaml"
RELEASE = "apps/plex/release.yaml"
SOURCE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "source"}}
TEMPLATE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "plex"}}
FILES = {
    KUSTOMIZATION: "---\nresources:\n  - release.yaml # the release\n  - zz.yaml\n",
    RELEASE: "---\n# plex\nkind: HelmRelease\napiVersion: v2\nmetadata: {name: plex}\nspec:\n  old: 1 # of GPUs\n",
    "apps/plex/zz.yaml": "---\nkind: ConfigMap\napiVersion: v1\nmetadata: {name: zz}\n",
    "apps/old/plugin.yaml": "kind: HelmRelease\napiVersion: v2\nmetadata: {name: plugin}\n",
    "apps/old/kustomization.yaml": "resources: [plugin.yaml]\n",
}
EXAMPLE = Path(__file__).parents[2] / "manifests" / "examples" / "homelab"
needs_kustomize = pytest.mark.skipif(not (shutil.which("kustomize") or shutil.which("kubectl")), reason="no kustomize")


def git(*arguments):
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A repository with one commit, and the settings of no user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "-q", "-b", "main")
    git("config", "user.name", "Ann")
    git("config", "user.email", "ann@example.com")
    write(FILES)
    commit()
    return folder


def write(files):
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(text.encode())


def commit():
    git("add", "--all")
    git("commit", "-q", "-m", "files")


@pytest.fixture
def steps(monkeypatch):
    """Steps of drivers and of consumers, which both edit the kustomization of plex."""

    def number_of(documents, file):
        return next(number for number, document in enumerate(documents) if document.file == file)

    def with_resource(documents, *names):
        number = number_of(documents, KUSTOMIZATION)
        return Edit(number, {"resources": sorted([*documents[number].object["resources"], *names])})

    def drivers(documents, *_):
        plugin = number_of(documents, "apps/old/plugin.yaml")
        none = Edit(number_of(documents, "apps/old/kustomization.yaml"), {"resources": []})
        source = NewFile("apps/plex/source.yaml", (SOURCE,))
        steps = (
            Step("prepare", (with_resource(documents, "source.yaml"),), (source,)),
            Step("switch", (Edit(plugin, None), none)),
            Step("tidy"),
        )
        return lambda name, _: next(step for step in steps if step.name == name)

    def consumers(documents, *_):
        number = number_of(documents, RELEASE)
        wanted = {**documents[number].object, "spec": {"new": "gpu"}}
        template = NewFile("apps/plex/template.yaml", (TEMPLATE,))
        return Step("switch", (Edit(number, wanted), with_resource(documents, "template.yaml")), (template,))

    monkeypatch.setattr(commits, "driver_steps", drivers)
    monkeypatch.setattr(commits, "consumer_edits", consumers)


def state():
    """Return what a user has: the status, the index, and all files but those of git."""
    files = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and ".git" not in path.parts}
    return git("status", "--porcelain", "--ignored"), git("ls-files", "--stage"), files


def branch(name="move-to-dra"):
    """Return the names of the steps' files, by subject of the commit; none if there is no branch."""
    if not git("branch", "--list", name):
        return {}
    log = git("log", "--reverse", "--name-status", "--no-renames", "--format=# %s", f"main..{name}")
    parts = [part.strip().split("\n") for part in log.split("# ")[1:]]
    return {subject: [line.replace("\t", " ") for line in lines if line] for subject, *lines in parts}


@pytest.mark.usefixtures("steps")
def test_a_pull_request_is_one_commit_for_each_step_on_a_new_branch(home):
    before = state()
    code, answer = run_json("migrate", "pr")
    assert (code, answer["state"], answer["base"]) == (0, "created", "main")
    assert branch() == {
        "Prepare the move from device plugins to DRA": [f"M {KUSTOMIZATION}", "A apps/plex/source.yaml"],
        "Replace device plugins with DRA drivers": [
            "M apps/old/kustomization.yaml",
            "D apps/old/plugin.yaml",
            f"M {KUSTOMIZATION}",
            f"M {RELEASE}",
            "A apps/plex/template.yaml",
        ],
    }
    assert [commit["commit"] for commit in answer["commits"]] == git(
        "log", "--reverse", "--format=%H", "main..move-to-dra"
    ).split()
    assert state() == before


@pytest.mark.usefixtures("steps", "home")
def test_edits_of_one_file_in_several_steps_are_composed_and_comments_stay():
    run("migrate", "pr")
    text = git("show", f"move-to-dra:{KUSTOMIZATION}")
    assert text == "---\nresources:\n  - release.yaml # the release\n  - source.yaml\n  - template.yaml\n  - zz.yaml"
    assert git("show", f"move-to-dra~1:{KUSTOMIZATION}").count("\n") == 4
    assert "# plex" in git("show", f"move-to-dra:{RELEASE}")


@pytest.mark.usefixtures("steps", "home")
def test_new_files_have_the_style_of_the_files_beside():
    run("migrate", "pr")
    assert git("show", "move-to-dra:apps/plex/template.yaml").startswith("---\napiVersion")


@pytest.mark.usefixtures("steps", "home")
def test_a_dry_run_makes_no_branch():
    assert run_json("migrate", "pr", "--dry-run")[1]["state"] == "dry run"
    assert branch() == {}


@pytest.mark.usefixtures("steps", "home")
def test_the_diff_applies_to_the_base(tmp_path):
    (tmp_path / "patch").write_text(run("migrate", "pr", "-o", "diff").stdout)
    git("apply", "--index", str(tmp_path / "patch"))
    assert git("write-tree") == git("rev-parse", "move-to-dra^{tree}")


@pytest.mark.usefixtures("steps", "home")
def test_the_same_branch_is_no_error_and_another_one_is():
    assert run("migrate", "pr").exit_code == 0
    made = git("rev-parse", "move-to-dra")
    assert run_json("migrate", "pr")[1]["state"] == "existed"
    write({"other": ""})
    commit()
    result = run("migrate", "pr")
    assert (result.exit_code, git("rev-parse", "move-to-dra")) == (2, made)
    assert "the branch move-to-dra exists" in result.stderr


def untracked():
    write({"apps/plex/template.yaml": "a: 1\n"})


def ignored():
    write({".gitignore": "template.yaml\n"})
    commit()


def staged():
    write({RELEASE: FILES[RELEASE] + "# staged\n"})
    git("add", RELEASE)
    write({RELEASE: FILES[RELEASE]})


def smudged():
    git("config", "filter.upper.clean", "sed s/PLEX/plex/")
    git("config", "filter.upper.smudge", "sed s/plex/PLEX/")
    write({".gitattributes": "*.yaml filter=upper\n"})
    commit()
    Path(RELEASE).unlink()
    git("checkout", RELEASE)


def linked_out():
    target = Path("../outside.yaml")
    Path(RELEASE).rename(target)
    Path(RELEASE).symlink_to(os.path.relpath(target, Path(RELEASE).parent))
    commit()


def unreadable():
    write({"apps/plex/consumer.yaml": "kind: Pod\nspec: [\n"})
    commit()


@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize(
    ("break_it", "part", "message"),
    [
        (lambda: write({RELEASE: FILES[RELEASE] + "# more\n"}), RELEASE, "differs from HEAD"),
        (lambda: write({"apps/plex/zz.yaml": FILES["apps/plex/zz.yaml"] + "# more\n"}), "zz.yaml", "differs from HEAD"),
        (staged, RELEASE, "differs from HEAD"),
        (untracked, "apps/plex/template.yaml", "HEAD does not have this file"),
        (ignored, "apps/plex/template.yaml", "template.yaml in .gitignore:1"),
        (smudged, RELEASE, "filter"),
        (unreadable, "apps/plex/consumer.yaml", "leave them out with --exclude"),
        (lambda: git("checkout", "-q", "--detach"), "", "HEAD is detached"),
        (lambda: shutil.rmtree(".git"), "", "git finds no working tree"),
        (lambda: git("checkout", "-q", "--orphan", "none"), "", "the repository has no commit"),
        (lambda: git("config", "--unset", "user.name") or git("config", "user.useConfigOnly", "true"), "", "user.name"),
        (lambda: git("branch", "move-to-dra/x"), "", "move-to-dra"),
    ],
    ids=[
        "edited",
        "read",
        "staged",
        "untracked",
        "ignored",
        "filter",
        "unreadable",
        "detached",
        "none",
        "empty",
        "author",
        "nested",
    ],
)
def test_what_prevents_a_branch_is_an_error_with_its_place(break_it, part, message):
    break_it()
    before = {path: path.read_bytes() for path in Path().rglob("*.yaml")}
    result = run("migrate", "pr")
    assert result.exit_code in (2, 3)
    assert part in result.stderr
    assert message in result.stderr
    assert {path: path.read_bytes() for path in Path().rglob("*.yaml")} == before
    assert not Path(".git").exists() or branch() == {}


@pytest.mark.usefixtures("steps", "home")
def test_a_branch_is_made_without_a_file_that_the_user_leaves_out():
    unreadable()
    result = run("migrate", "pr", "--exclude", "consumer.yaml")
    assert (result.exit_code, len(branch())) == (0, 2)


@pytest.mark.usefixtures("steps", "home")
def test_a_file_that_leads_out_of_the_repository_is_skipped_and_reported():
    linked_out()
    result = run("migrate", "pr")
    assert result.exit_code != 0
    assert branch() == {}


@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize("name", ["a..b", "--upload-pack=x", "HEAD", "@{-1}"])
def test_the_branch_has_a_valid_name(name):
    git("switch", "-q", "-c", "previous")
    git("switch", "-q", "main")
    result = run("migrate", "pr", "--branch", name)
    assert (result.exit_code, f"{name}: this is no name of a branch" in result.stderr) == (2, True)


@pytest.mark.usefixtures("steps", "home")
def test_the_reason_of_git_names_the_file_that_is_locked():
    Path(".git/refs/heads/move-to-dra.lock").touch()
    result = run("migrate", "pr")
    assert (result.exit_code, "refs/heads/move-to-dra.lock': File exists" in result.stderr) == (3, True)


@pytest.mark.usefixtures("steps", "home")
def test_the_mode_of_a_file_and_its_ends_of_lines_stay():
    Path(RELEASE).chmod(0o755)
    write({RELEASE: FILES[RELEASE].replace("\n", "\r\n")})
    commit()
    run("migrate", "pr")
    assert git("ls-tree", "move-to-dra", RELEASE).startswith("100755")
    stored = subprocess.check_output(["git", "cat-file", "blob", f"move-to-dra:{RELEASE}"])
    assert stored.count(b"\r\n") == stored.count(b"\n")


@pytest.mark.usefixtures("steps", "home")
def test_the_ends_of_lines_that_only_the_working_tree_has_are_not_committed():
    git("config", "core.autocrlf", "true")
    git("rm", "-q", "--cached", "-r", ".")
    git("reset", "-q", "--hard")
    assert b"\r\n" in Path(RELEASE).read_bytes()
    assert run("migrate", "pr").exit_code == 0
    assert b"\r\n" not in subprocess.check_output(["git", "cat-file", "blob", f"move-to-dra:{RELEASE}"])


@pytest.mark.usefixtures("steps", "home")
def test_the_target_of_a_link_is_edited():
    Path(RELEASE).rename("apps/target.yaml")
    Path(RELEASE).symlink_to("../target.yaml")
    commit()
    run("migrate", "pr")
    assert git("ls-tree", "move-to-dra", RELEASE).startswith("120000")
    assert "new: gpu" in git("show", "move-to-dra:apps/target.yaml")


@needs_kustomize
@pytest.mark.usefixtures("home")
def test_a_file_may_be_read_by_links_too():
    shutil.copytree(EXAMPLE, "apps/example")
    write({"apps/other/kustomization.yaml": "resources: [link.yaml]\n"})
    Path("apps/other/link.yaml").symlink_to("../example/jellyfin.yaml")
    commit()
    assert run("migrate", "pr").exit_code == 0
    assert "M apps/example/jellyfin.yaml" in [line for lines in branch().values() for line in lines]


@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize(("tree", "code"), [(".", 0), ("apps/plex", 2)])
def test_git_runs_no_program_of_the_repository_or_of_a_bare_one_in_its_tree(tmp_path, monkeypatch, tree, code):
    program = f"touch {tmp_path}/ran; false"
    write({".gitattributes": "* filter=run\n", "bin/git": f"#!/bin/sh\n{program}\n"})
    commit()
    if tree != ".":
        git("init", "-q", "--bare", tree)
        git("--git-dir", tree, "config", "core.bare", "false")
        git("--git-dir", tree, "config", "core.worktree", str(Path(tree).absolute()))
        git("--git-dir", tree, "fetch", "-q", ".", "main:main")
        git("--git-dir", tree, "symbolic-ref", "HEAD", "refs/heads/main")
    for name in ("core.fsmonitor", "filter.run.clean", "filter.run.smudge", "filter.run.process"):
        git("--git-dir", ".git" if tree == "." else tree, "config", name, program)
    Path("bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"bin:.:{Path('bin').absolute()}:{os.environ['PATH']}")
    for file in Path("apps").rglob("*.yaml"):
        os.utime(file, (1, 1))  # git has to read it again
    assert run("migrate", "pr", tree).exit_code == code
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("steps", "home")
def test_a_file_of_a_submodule_is_an_error(tmp_path):
    shutil.move("apps/plex", tmp_path / "plex")
    git("rm", "-q", "-r", "--cached", "apps/plex")
    git("-C", str(tmp_path / "plex"), "init", "-q")
    git("-C", str(tmp_path / "plex"), "add", ".")
    git("-C", str(tmp_path / "plex"), "-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "-m", "a")
    git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "plex"), "apps/plex")
    commit()
    result = run("migrate", "pr")
    assert (result.exit_code, "submodule" in result.stderr) == (2, True)


# Kills

KILLING = """\
#!/bin/sh
read left < {counter}
left=$((left - 1))
echo $left > {counter}
{program} "$@"
code=$?
[ $left -eq 0 ] && kill -9 $PPID
exit $code
"""


def run_until_killed(number, counter):
    """Run the command in a process that is killed after its call of this number. Return whether it was killed."""
    counter.write_text(f"{number}\n")
    child = os.fork()
    if child == 0:
        run("migrate", "pr")
        os._exit(0)
    is_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    counter.write_text("0\n")
    return is_killed


@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize(
    ("program", "calls"),
    [("git", 20), pytest.param("kustomize" if shutil.which("kustomize") else "kubectl", 3, marks=needs_kustomize)],
)
def test_after_a_kill_at_any_call_of_a_program_the_branch_is_absent_or_whole(tmp_path, monkeypatch, program, calls):
    counter, killing = tmp_path / "counter", tmp_path / "bin" / program
    killing.parent.mkdir()
    killing.write_text(KILLING.format(program=shutil.which(program), counter=counter))
    killing.chmod(0o755)
    counter.write_text("0\n")
    monkeypatch.setenv("PATH", f"{killing.parent}{os.pathsep}{os.environ['PATH']}")
    user_state = state()
    outcomes = []
    for number in range(1, 100):
        is_killed = run_until_killed(number, counter)
        outcomes.append(branch())
        assert state() == user_state
        if not is_killed:
            break
        if outcomes[-1]:
            git("branch", "-q", "-D", "move-to-dra")
    whole = outcomes[-1]
    assert len(whole) == 2
    assert len(outcomes) > calls
    assert [outcome for outcome in outcomes if outcome not in ({}, whole)] == []


# Builds


def without_template(documents):
    """Return what the consumers' step becomes if its kustomization lists a file that does not exist."""
    number = next(number for number, document in enumerate(documents) if document.file == KUSTOMIZATION)
    return Step("switch", (Edit(number, {"resources": ["release.yaml", "template.yaml", "zz.yaml"]}),))


def with_patch(documents):
    """Return a change of a kustomization that changes an object of another file."""
    number = next(number for number, document in enumerate(documents) if document.file == KUSTOMIZATION)
    return Step("switch", (Edit(number, {**documents[number].object, "namePrefix": "new-"}),))


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize(
    ("step", "message"), [(without_template, "template.yaml"), (with_patch, "otherwise in the build than in its file")]
)
def test_a_step_that_breaks_a_build_or_changes_other_objects_stops_the_command(monkeypatch, step, message):
    monkeypatch.setattr(commits, "consumer_edits", lambda documents, *_: step(documents))
    result = run("migrate", "pr")
    assert (result.exit_code, branch()) == (2, {})
    assert f"{KUSTOMIZATION}: " in result.stderr
    assert message in result.stderr


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
def test_a_kustomization_that_cannot_be_built_is_named_in_the_commit():
    write({"apps/old/kustomization.yaml": "resources: [plugin.yaml, https://example.com/x.yaml]\n"})
    commit()
    [line] = run_json("migrate", "pr")[1]["notRendered"]
    assert line.startswith("apps/old/kustomization.yaml: ")
    assert "- apps/old/kustomization.yaml" in git("log", "-1", "--format=%B", "move-to-dra")


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize("field", ["configMapGenerator: [{name: data, files: [%s]}]", "patches: [{path: %s}]"])
def test_a_kustomization_with_changed_data_or_a_changed_patch_is_built_and_not_compared(field):
    zz = FILES["apps/plex/zz.yaml"]
    write({"apps/plex/zz.yaml": zz.replace("ConfigMap", "HelmRelease").replace("v1", "v2").replace("zz", "plex")})
    write({"apps/kustomization.yaml": f"resources: [plex/zz.yaml]\n{field % 'plex/release.yaml'}\n"})
    write({KUSTOMIZATION: FILES[KUSTOMIZATION].replace("  - zz.yaml\n", "")})
    commit()
    [line] = run_json("migrate", "pr")[1]["notRendered"]
    assert line.startswith("apps/kustomization.yaml: apps/plex/release.yaml is a patch or the data of a generator")


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
def test_no_more_kustomizations_are_built_than_a_limit(monkeypatch):
    monkeypatch.setattr(compared, "_MAX_BUILDS", 1)
    [line] = run_json("migrate", "pr")[1]["notRendered"]
    assert line.startswith("apps/plex/kustomization.yaml: only the first 1 ")


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
def test_other_kustomizations_need_not_be_buildable():
    write({"apps/other/kustomization.yaml": "resources: [away.yaml]\n"})
    commit()
    assert run_json("migrate", "pr")[1]["notRendered"] == []


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
def test_an_overlay_with_a_prefix_may_build_what_is_edited():
    write({"overlay/kustomization.yaml": "namePrefix: my-\nnamespace: media\nresources: [../apps/old]\n"})
    commit()
    assert run("migrate", "pr").exit_code == 0


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
def test_an_overlay_may_delete_what_is_edited():
    patch = "{$patch: delete, kind: HelmRelease, apiVersion: v2, metadata: {name: plex}}"
    write({"overlay/kustomization.yaml": f"resources: [../apps/plex]\npatches: [patch: '{patch}']\n"})
    commit()
    assert run("migrate", "pr").exit_code == 0


@needs_kustomize
@pytest.mark.usefixtures("steps", "home")
@pytest.mark.parametrize(
    ("files", "also"),
    [
        # A file with the text of a changed one.
        ({"apps/other/kustomization.yaml": FILES[KUSTOMIZATION]}, ["apps/plex"]),
        # Its build includes that of apps/plex.
        ({"overlay/kustomization.yaml": "resources: [../apps/plex]\n"}, ["overlay"]),
        # A build that does not work compares nothing.
        (
            {"overlay/kustomization.yaml": "resources: [../apps/plex, https://example.com/x.yaml]\n"},
            ["apps/plex", "overlay"],
        ),
    ],
)
def test_only_the_outermost_kustomizations_with_changes_are_built(monkeypatch, files, also):
    write(files)
    commit()
    built = []
    build = trees.build_offline
    monkeypatch.setattr(trees, "build_offline", lambda path, name: built.append(name) or build(path, name))
    run("migrate", "pr")
    assert sorted({os.path.dirname(name) for name in built}) == ["apps/old", *also]  # noqa: PTH120


# The operator of a plugin, in a folder that an object of Flux builds with a prefix.
OPERATOR = {
    "clusters/operator.yaml": (
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: operator, namespace: flux-system}\n"
        "spec: {path: apps/operator, namePrefix: my-, sourceRef: {kind: GitRepository, name: flux-system}}\n"
    ),
    "clusters/kustomization.yaml": "resources: [operator.yaml]\n",
    "apps/operator/kustomization.yaml": "resources: [release.yaml]\n",
    "apps/operator/release.yaml": (EXAMPLE / "gpu-plugin.yaml").read_text().replace("plugins-gpu", "plugins-operator"),
}


@needs_kustomize
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("more", "change"),
    [
        ({}, "M apps/example/gpu-plugin.yaml"),
        (OPERATOR, "D apps/operator/release.yaml"),
        (several(*map(with_component, ("a", "b", "c"))), "A apps/a/resourceclaimtemplate.yaml"),
    ],
    ids=[
        "the plugin's release becomes the driver's",
        "a folder goes with the object of Flux that builds it",
        "three apps with components",
    ],
)
def test_a_move_of_an_example_builds(more, change):
    shutil.copytree(EXAMPLE, "apps/example")
    write(more)
    commit()
    move()
    assert change in [line for lines in branch().values() for line in lines]


@pytest.mark.usefixtures("home")
def test_the_page_shows_a_part_of_the_diff_of_the_example():
    page = (EXAMPLE.parents[2] / "docs" / "migrate.md").read_text()
    shutil.copytree(EXAMPLE, "apps/example")
    commit()
    shown = page.partition("```diff\n")[2].partition("```")[0]
    assert shown
    assert shown in run("migrate", "pr", "--dry-run", "-o", "diff").stdout


@pytest.mark.usefixtures("steps", "home")
def test_without_a_program_that_builds_nothing_is_compared(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    [line] = run_json("migrate", "pr")[1]["notRendered"]
    assert "neither kustomize nor kubectl" in line


# Whole moves


def move(*arguments, text=""):
    """Let a person decide that each plugin goes, and return the message of the commit `switch` as one line. `text` is the plan's."""
    plan = Path("..", "moving.yaml")
    plan.write_text((text or run("migrate", "plan").stdout).replace("decision: stay", "decision: move"))
    code, answer = run_json("migrate", "pr", "--plan", plan, *arguments)
    assert code == 0
    [message] = [made["message"] for made in answer["commits"] if made["step"] == "switch"]
    return " ".join(message.split())


@pytest.fixture
def moving(home):
    """A repository with two workloads that share a device, and one whose chart has no place for claims."""
    by_hand = app("frigate", "media", version="3.7.1")
    by_hand["apps/frigate/repository.yaml"] = by_hand["apps/frigate/repository.yaml"].replace("name: app", "name: old")
    by_hand["apps/frigate/release.yaml"] = by_hand["apps/frigate/release.yaml"].replace("name: app-t", "name: old-t")
    write(app("plex", "media") | app("jellyfin", "media") | by_hand | plugin())
    commit()
    return home


@pytest.mark.usefixtures("moving")
def test_the_message_of_the_switch_has_what_a_reviewer_decides_about():
    text = move("--dry-run")
    parts = [
        "Move 2 workloads from device plugins to DRA Plugins",
        "Drivers: - gpu.intel.com: chart intel-gpu-resource-driver",
        "HelmRelease/media/plex: 1 gpu.intel.com/i915 becomes a claim of gpu.intel.com",
        "do not start again: - HelmRelease/media/frigate: 1 gpu.intel.com/i915: update chart",
        "What has to be true before the merge: - Kubernetes 1.34",
        "What is lost: - gpu.intel.com: sharing",
        "By hand: - before the switch: suspend Flux or Argo CD",
        "not compared: - HelmRelease/media/jellyfin, HelmRelease/media/plex: ",
        "The way back: revert this commit alone.",
    ]
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.usefixtures("moving")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (r'"\e[31mred"', r"\x1b[31mred"),
        ('"@team"', r"\x40team"),
        ('"closes #1"', r"closes \x231"),
        ('"fixes https://example.com/a/b/issues/7"', r"fixes https://example.com/a/b/\x69ssues/7"),
        ('"![](//a)"', r"!\x5b](//a)"),
    ],
)
def test_names_that_a_terminal_or_a_forge_would_interpret_are_escaped_in_messages(name, shown):
    write({"apps/frigate/release.yaml": Path("apps/frigate/release.yaml").read_text().replace("frigate", name, 1)})
    commit()
    assert f"media/{shown}: 1 gpu.intel.com/i915" in move("--dry-run")


@pytest.mark.usefixtures("moving")
def test_the_answer_names_what_keeps_its_key():
    move("--dry-run")
    arguments = ("migrate", "pr", "--dry-run", "--plan", Path("..", "moving.yaml"))
    [line] = run_json(*arguments)[1]["notMoved"]
    assert line.startswith("HelmRelease/media/frigate: 1 gpu.intel.com/i915: update chart")
    assert line in run(*arguments).stdout


@pytest.mark.usefixtures("moving")
def test_a_plugin_stays_beside_a_consumer_that_cannot_follow():
    code, answer = run_json("migrate", "pr")
    assert (code, [commit["step"] for commit in answer["commits"]]) == (1, ["prepare"])
    [why] = answer["stays"]
    assert why.startswith("gpu.intel.com: 1 consumer would lose its devices")
    assert "HelmRelease/media/frigate" in why
    text = run("migrate", "pr").stdout
    assert text.split("\n")[:2] == ["Do not move now: gpu.intel.com", f"Stops it: {why}"]
    # The branch takes the devices of no pod, and says nowhere that the plugin goes.
    assert not {name for names in branch().values() for name in names if name.startswith("D ")}
    assert "goes" not in f"{text}{git('log', '-p', 'main..move-to-dra')}"
    for file in ("apps/plugin/release.yaml", "apps/plex/release.yaml"):
        assert git("show", f"move-to-dra:{file}") == git("show", f"main:{file}")


@pytest.mark.usefixtures("home")
def test_a_plugin_goes_once_the_class_of_the_first_step_is_merged():
    write(without_place() | K36)
    commit()
    assert run("migrate", "pr").exit_code == 1
    [names] = branch().values()
    assert {"M apps/frigate/kustomization.yaml", "A apps/frigate/deviceclass.yaml"} <= set(names)
    git("merge", "-q", "move-to-dra")
    code, answer = run_json("migrate", "pr", "--branch", "second")
    assert (code, answer["notMoved"], answer["stays"]) == (0, [], [])
    assert "stay, because a DeviceClass serves them by name: - HelmRelease/media/frigate" in " ".join(
        answer["commits"][-1]["message"].split()
    )
    assert git("diff", "--name-only", "main", "second", "--", "apps/frigate") == ""


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.usefixtures("home")
def test_a_plugin_stays_if_the_edit_of_a_consumer_fails(decides):
    """The editor does not write JSON. A person may let the plugin go nevertheless, if the plan says that the consumer is edited by hand."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i", **limits}]}}
    spec = {"selector": {"matchLabels": {"app": "a"}}, "template": pod}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    files = app("plex", "media", "nvidia.com/gpu")
    files["apps/plex/kustomization.yaml"] = files["apps/plex/kustomization.yaml"].replace("[", "[deployment.json, ")
    write(files | plugin(GPU_OPERATOR % "true") | {"apps/plex/deployment.json": json.dumps(deployment)})
    commit()
    written = yaml.safe_load(run("migrate", "plan").stdout)
    assert [consumer["verdict"] for consumer in written["consumers"]] == ["edit", "edit"]
    assert [family["decision"] for family in written["families"]] == ["move"]
    if decides:
        [consumer] = [consumer for consumer in written["consumers"] if consumer["object"].startswith("Deployment")]
        consumer |= {"verdict": "by hand"}
    Path("../plan.yaml").write_text(yaml.safe_dump(written))
    code, answer = run_json("migrate", "pr", "--plan", "../plan.yaml", "--dry-run")
    assert (code, "switch" in [made["step"] for made in answer["commits"]]) == (int(not decides), decides)
    assert any("Deployment/media/a still requests nvidia.com/gpu" in why for why in answer["stays"]) is not decides


@pytest.mark.usefixtures("moving")
def test_a_moved_tree_has_nothing_more_to_move_and_the_switch_can_be_reverted():
    move()
    git("switch", "-q", "move-to-dra")
    assert run_json("migrate", "pr", "--branch", "again")[1]["commits"] == []
    [switch] = git("log", "--format=%H", "--grep", "^Move 2 workloads").split()
    git("revert", "--no-edit", switch)
    assert git("diff", "--name-only", "--diff-filter=MD", "main") == ""


@pytest.mark.usefixtures("moving")
def test_the_decisions_of_a_plan_are_followed(tmp_path):
    plan = run("migrate", "plan").stdout
    assert "with the driver: exclusive" in move(text=plan.replace("decision: named claim", "decision: exclusive"))
    file = tmp_path / "plan.yaml"
    file.write_text(plan.replace("decision: named claim", "decision: shares"))
    assert "cannot be `shares`" in run("migrate", "pr", "--plan", str(file)).stderr
    file.write_text(plan.replace("decision: named claim", "decision: often"))
    result = run("migrate", "pr", "--plan", file)
    assert (result.exit_code, "decision" in result.stderr) == (2, True)


@pytest.mark.parametrize(("decision", "is_lost"), [("shares", False), ("exclusive", True)])
@pytest.mark.usefixtures("home")
def test_what_is_lost_follows_the_decision_about_sharing(decision, is_lost):
    write(app("llm", "ai", "nvidia.com/gpu") | app("tts", "voice", "nvidia.com/gpu") | plugin(GPU_OPERATOR % "true"))
    commit()
    plan = run("migrate", "plan").stdout
    text = move("--dry-run", text=plan.replace("decision: shares", f"decision: {decision}"))
    assert ("What is lost: - gpu.nvidia.com: sharing" in text) is is_lost
    assert text.count("wait until no pod holds a device") == 1
    assert (f"with the driver: {decision}" in text, "up to 4 claims share" in text) == (True, not is_lost)


# Plans


@pytest.mark.usefixtures("steps", "home")
def test_a_plan_of_another_tree_is_an_error_that_names_the_difference(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(run("migrate", "plan").stdout)
    assert run("migrate", "pr", "--plan", plan, "--dry-run").exit_code == 0
    container = "{name: a, image: a, resources: {limits: {nvidia.com/gpu: 1}}}"
    write(
        {
            "apps/plex/zz.yaml": f"apiVersion: v1\nkind: Pod\nmetadata: {{name: zz}}\nspec: {{containers: [{container}]}}\n"
        }
    )
    commit()
    result = run("migrate", "pr", "--plan", plan)
    assert (result.exit_code, "consumers: new: Pod/default/zz" in result.stderr, branch()) == (2, True, {})


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--branch", "x"], "no such option '--branch' (see `drawbridge migrate plan --help`)"),
        (["pr", "--check", "x"], "no such option '--check' (see `drawbridge migrate pr --help`)"),
        (["pr", "-o", "yaml"], "yaml"),
        (["plam"], "Did you mean 'plan'?"),
        ([], "Missing command"),
    ],
)
def test_an_option_of_another_step_is_refused(arguments, message):
    result = run("migrate", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


@pytest.mark.usefixtures("home")
def test_consumers_are_stopped_where_a_person_decides_that_the_plugin_goes():
    write(app("plex", "media") | app("frigate", "home") | plugin())
    commit()
    assert "wait until no pod holds a device" in move("--dry-run")


@pytest.mark.usefixtures("home")
def test_a_driver_does_not_move_before_its_question_is_decided():
    write(TWO_APPS | plugin() | {"talconfig.yaml": TWO_NODES})
    commit()
    written = yaml.safe_load(run("migrate", "plan").stdout)
    [family] = written["families"]
    family["decision"] = "move"
    codes = []
    for decision in ("undecided", "named claim"):
        family["sharing"]["decision"] = decision
        Path("../plan.yaml").write_text(yaml.safe_dump(written))
        result = run("migrate", "pr", "--plan", "../plan.yaml", "--dry-run")
        codes.append((result.exit_code, "exclusive, named claim" in result.stderr))
    assert codes == [(2, True), (0, False)]


@pytest.mark.usefixtures("home")
def test_the_answer_begins_with_whether_to_move_what_stops_it_and_who_loses_what():
    write(app("plex", "media", "nvidia.com/gpu") | plugin(GPU_OPERATOR % "true"))
    commit()
    written = yaml.safe_load(run("migrate", "plan").stdout)
    written["consumers"][0]["verdict"] = "by hand"
    Path("../plan.yaml").write_text(yaml.safe_dump(written))
    first = run("migrate", "pr", "--plan", "../plan.yaml", "--dry-run").stdout.splitlines()[:3]
    assert first == [
        "Move now: gpu.nvidia.com",
        "Stops it: nothing in the tree",
        "Loses devices: HelmRelease/media/plex (nvidia.com/gpu)",
    ]
