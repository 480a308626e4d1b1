"""The action and the hooks in an untrusted workspace: nothing that lies there is run, and all that is named is checked."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

from cluster.manifests.yaml_reader import load
from tests.cli.running import run
from tests.corpus.trees import TREES, written

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
HOOKS = load((ROOT / ".pre-commit-hooks.yaml").read_bytes())[0]
ACTION = load((ROOT / "action.yml").read_bytes())[0]

# Modules that something on the way imports: ours, those of our packages, and those of Python itself.
MODULES = (
    *(
        "allocator",
        "analysis",
        "certs",
        "cli",
        "cluster",
        "dra",
        "drawbridge",
        "manifests",
        "node",
        "rendering",
        "webhook",
    ),
    *("click", "kubernetes", "msgspec", "re2", "yaml"),
    *("conftest", "ensurepip", "json", "pip", "re", "runpy", "secrets", "site", "sitecustomize", "sysconfig", "typing"),
    *("usercustomize", "venv"),
)
BAD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: B_A_D}\nspec: {}\n"
GOOD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n"


@pytest.fixture
def workspace(tmp_path):
    """A checkout whose files write `ran` beside it as soon as something imports or runs them."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    runs = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + chr(10))\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(runs)
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(runs)
        (folder / name / "__main__.py").write_text(runs)
    (folder / "setup.py").write_text(runs)
    (folder / "evil.pth").write_text(f"import sys; {runs}")
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'conftest'\nbackend-path = ['.']\n"
    )
    (folder / ".env").write_text("PYTHONSTARTUP=conftest.py\n")
    # What uv, pip, pyenv, setuptools and git read where they are run.
    (folder / "uv.toml").write_text("index-url = 'http://127.0.0.1:1/'\npython-preference = 'system'\n")
    (folder / ".python-version").write_text("./python\n")
    (folder / "pip.conf").write_text("[global]\npython = ./python\n")
    (folder / "setup.cfg").write_text("[options]\nsetup_requires = conftest\n")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (folder / ".git").mkdir()
    git = f'[core]\nfsmonitor = {folder}/python\nsshCommand = {folder}/python\n[filter "evil"]\nsmudge = {folder}/python\nclean = {folder}/python\n'
    (folder / ".git" / "config").write_text(git)
    (folder / ".bashrc").write_text(f"echo bash >> {tmp_path / 'ran'}\n")
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho python >> {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    (folder / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    (folder / "good.yaml").write_text(GOOD)
    (folder / "bad.yaml").write_text(BAD)
    return folder


@pytest.fixture
def python(tmp_path):
    """The interpreter that setup-python names; the environments that it makes have a pip that installs nothing and says how it was called."""
    program = tmp_path / "setup-python"
    pip = f"""\
        import os, sys
        print(os.getcwd(), sys.flags.isolated, *sys.argv[1:], sep="\\n", file=open({str(tmp_path / "pip")!r}, "w"))
    """
    script = f"""\
        #!{sys.executable} -I
        import os, pathlib, subprocess, sys, sysconfig
        arguments = sys.argv[1:]
        assert arguments[:3] == ["-I", "-m", "venv"], arguments
        subprocess.run([sys.executable, *arguments, "--without-pip"], check=True)
        [packages] = pathlib.Path(arguments[3]).glob("lib/*/site-packages")
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
        (packages / "pip.py").write_text({textwrap.dedent(pip)!r})
    """
    program.write_text(textwrap.dedent(script))
    program.chmod(0o755)
    return program


def act(workspace, python, search=os.environ["PATH"], job=(), **inputs):
    """Run the steps of the action as a runner does; `job` is the environment that the job has by itself."""
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


def test_the_action_runs_nothing_of_the_pull_request_and_leaves_the_rest_of_the_job_alone(workspace, python):
    before = sorted(workspace.rglob("*"))
    done = act(workspace, python, paths="bad.yaml")
    assert nothing_ran(workspace) is True
    assert sorted(workspace.rglob("*")) == before
    [setup] = [step for step in ACTION["runs"]["steps"] if "uses" in step]
    assert setup["with"]["update-environment"] is False
    assert done.returncode == 1, done.stderr
    assert "::error file=bad.yaml,line=3," in done.stdout


def test_the_modules_of_the_workspace_would_be_run_by_a_python_that_is_not_isolated(workspace):
    """So that the test above is one."""
    subprocess.run([sys.executable, "-m", "pip"], cwd=workspace, check=False, capture_output=True)
    assert nothing_ran(workspace) is not True


def test_the_action_installs_what_is_pinned_by_its_hash_and_outside_of_the_workspace(workspace, python):
    act(workspace, python)
    where, isolated, *arguments = (workspace.parent / "pip").read_text().splitlines()
    assert not Path(where).is_relative_to(workspace)
    assert isolated == "1"
    assert "--require-hashes" in arguments
    assert arguments[arguments.index("--only-binary") + 1] == ":all:"
    assert arguments[arguments.index("--requirement") + 1] == f"{ROOT}/requirements.runtime.lock"
    assert not any(argument.startswith(("-e", "git+", "/")) and "lock" not in argument for argument in arguments[1:])
    others = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert [other for other in others if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", other)] == []


def test_no_expression_of_the_action_stands_in_a_script_and_no_token_is_asked_for():
    text = (ROOT / "action.yml").read_text()
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
    assert set(re.findall(r"\$\{\{ (\w+)\.", text)) == {"inputs", "steps"}
    assert not re.search(r"GITHUB_(ENV|PATH|OUTPUT|TOKEN)|github\.token|secrets\.\w+ \}\}", text)


def test_every_line_of_the_paths_is_checked(workspace, python):
    done = act(workspace, python, paths="good.yaml\n\n./bad.yaml\n")
    assert done.returncode == 1, done.stderr
    assert "::error file=bad.yaml,line=3," in done.stdout


NAMES = (
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


def test_a_path_is_that_path_whatever_it_is_called(workspace, python):
    for name in NAMES:
        (workspace / name).write_text(BAD)
    done = act(workspace, python, paths="\n".join(NAMES))
    assert done.returncode == 1, done.stderr
    annotated = re.findall(r"^::error file=(.*?),line=3,", done.stdout, re.MULTILINE)
    assert annotated == [name.replace("%", "%25").replace(":", "%3A").replace(",", "%2C") for name in NAMES]
    assert nothing_ran(workspace) is True
    assert not (workspace / "ran").exists()


def test_an_inventory_is_said_a_line_each(workspace, python):
    (workspace / "-i n.yaml").write_text(GOOD)
    done = act(workspace, python, paths="good.yaml", inventory="good.yaml\n-i n.yaml\n")
    assert done.returncode == 0, done.stderr
    done = act(workspace, python, paths="good.yaml", inventory="good.yaml\nmissing.yaml\n")
    assert done.returncode == 2
    assert "missing.yaml" in done.stdout


@pytest.mark.parametrize("paths", ["\n", "good.yaml bad.yaml", "https://127.0.0.1:1/a.yaml", "kustomize:."])
def test_invalid_paths_fail_the_job(workspace, python, paths):
    done = act(workspace, python, paths=paths)
    assert done.returncode == 2
    lines = [line for line in done.stdout.splitlines() if "rror: " in line and "see above" not in line]
    assert len(lines) == 1


def test_text_quoted_from_the_workspace_is_not_a_workflow_command(workspace, python):
    """The runner obeys lines that begin with ::, and ##[ anywhere in a line."""
    (workspace / "##[stop-commands]x.yaml").write_text("{apiVersion")
    (workspace / "::add-mask::a.yaml").write_text("{apiVersion")
    (workspace / "named.yaml").write_text(BAD.replace("DeviceClass", '"::set-output name=a::b\\n::add-mask::c"'))
    done = act(workspace, python, paths=".")
    assert done.returncode == 2
    stopped, resumed = [at for at, line in enumerate(done.stdout.splitlines()) if re.search(r"[0-9a-f]{32}", line)]
    lines = done.stdout.splitlines()
    token = lines[stopped].removeprefix("::stop-commands::")
    assert lines[resumed] == f"::{token}::"
    obeyed = lines[:stopped] + lines[resumed + 1 :]
    assert obeyed
    assert all(
        re.match(r"::(error|warning|notice) (file=[^:,]+,line=\d+,col=\d+,)?title=([A-Z]\d+|unreadable)::", line)
        for line in obeyed
    )


# Python reads these before it runs anything; a job that builds the project in its workspace may have set them.
VARIABLES = {
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


def test_no_variable_of_the_job_has_anything_of_the_workspace_run(workspace, python):
    (workspace / "lib").symlink_to(workspace)
    done = act(workspace, python, job=VARIABLES, paths="bad.yaml")
    assert nothing_ran(workspace) is True
    assert done.returncode == 1, done.stderr
    assert "::error file=bad.yaml,line=3," in done.stdout


# A runner ends a line at either of the first two; the rest are for other readers of a log.
ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\x1b[2K\x1b[1G")


@pytest.mark.parametrize("text", [BAD, "{apiVersion", GOOD.replace("fine", "a\n::error::b") + "data: 3\n"])
def test_no_name_of_a_file_forges_a_line_of_the_log(workspace, python, text):
    for number, end in enumerate(ENDS):
        folder = workspace / f"{number}{end}::set-env name=PATH::"
        folder.mkdir()
        (folder / f"a{end}::error::forged.yaml").write_text(text)
    (workspace / os.fsdecode(b"\xff\n::error::forged.yaml")).write_text(text)
    done = act(workspace, python, paths=".")
    assert done.returncode in {1, 2}
    assert done.stderr == ""
    lines = re.split(r"\r\n|[\n\r\x0b\x0c\x85\u2028]", done.stdout)
    stopped, resumed = [at for at, line in enumerate(lines) if re.search(r"[0-9a-f]{32}", line)]
    obeyed = lines[:stopped] + lines[resumed + 1 :]
    assert all(
        re.match(r"::error (file=[^:,]+,line=\d+,col=\d+,)?title=([A-Z]\d+|unreadable)::", line)
        for line in obeyed
        if line
    )
    assert [line for line in lines if line.startswith("::set-env")] == []
    assert "\x1b" not in done.stdout


def test_no_configuration_of_the_pull_request_reaches_out_of_it_or_hides_what_is_wrong(workspace, python):
    secret = workspace.parent / "secret.yaml"
    secret.write_text("SECRET: 1\n")
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    (workspace / "drawbridge.yaml").symlink_to(secret)
    (workspace / "configuration.yaml").write_text(f"{head}mode: 'off'\nevidence: ../secret.yaml\nfail-on: never\n")
    done = act(workspace, python)
    assert done.returncode == 2
    assert "::error file=bad.yaml,line=3," in done.stdout
    assert "unknown field 'fail-on'" in done.stdout
    assert "SECRET" not in done.stdout
    assert nothing_ran(workspace) is True


@pytest.fixture
def builders(tmp_path):
    """A folder of programs outside of the workspace that build a bad object, and write down how they were called."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, first in (("kustomize", ""), ("helm", "# Source: app/templates/bad.yaml\n")):
        program = folder / name
        text = (first + BAD).replace("\n", "\\n")
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path / name}\nprintf '{text}'\n")
        program.chmod(0o755)
    return folder


def a_chart(folder):
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    (folder / "templates" / "bad.yaml").write_text("{{ .Values }}\n")


def test_the_action_has_charts_and_kustomizations_built_and_annotates_files_that_are_there(workspace, python, builders):
    a_chart(workspace / "my chart")
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    (workspace / "a,b.yaml").write_text("a: 1\n")
    (workspace / "config.yaml").write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n")
    search = f"{builders}{os.pathsep}{os.environ['PATH']}"
    done = act(
        workspace,
        python,
        search,
        paths=".",
        exclude="bad.yaml\n-x/",
        kustomize="prod\n",
        chart="my chart",
        values="good.yaml\na,b.yaml",
        namespace="team",
        config="config.yaml",
        kubernetes="1.35",
    )
    assert done.returncode == 1, done.stdout
    annotated = re.findall(r"^::error file=(.*?),line=(\d+),", done.stdout, re.MULTILINE)
    assert annotated == [("prod/kustomization.yaml", "1"), ("my chart/templates/bad.yaml", "1")]
    assert (workspace.parent / "kustomize").read_text().splitlines() == ["build", str(workspace / "prod")]
    assert (workspace.parent / "helm").read_text().splitlines() == [
        *("template", "release-name", str(workspace / "my chart"), "--kube-version=1.35"),
        *("--api-versions=resource.k8s.io/v1", "--namespace=team"),
        *(f"--values={workspace}/good.yaml", f'--values="{workspace}/a,b.yaml"'),
    ]
    assert nothing_ran(workspace) is True


def test_no_program_of_the_pull_request_builds_it(workspace, python):
    a_chart(workspace / "chart")
    (workspace / "bin").mkdir()
    for folder in (workspace, workspace / "bin"):
        for name in ("helm", "kubectl", "kustomize"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {workspace.parent / 'ran'}\n")
            (folder / name).chmod(0o755)
    # The runner's own tools without helm and kubectl.
    tools = workspace.parent / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "mktemp"):
        (tools / name).symlink_to(shutil.which(name))
    path = os.pathsep.join((".", "", "bin", str(workspace), f"{workspace}/bin", f"{tools}"))
    done = act(workspace, python, path, paths="", chart="chart", kustomize="chart")
    assert done.returncode == 2
    assert "helm is not here to build it" in done.stdout
    assert "neither kustomize nor kubectl is here" in done.stdout
    assert nothing_ran(workspace) is True


def test_no_revision_of_a_base_is_an_option_that_has_git_run_a_program(workspace, builders, monkeypatch):
    """As kustomize calls git for `file:///REPOSITORY?ref=--upload-pack=PROGRAM` (the real one: `e2e/kubernetes/test_trees.py`)."""
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    own = workspace.parent / "own"
    fetch = f"git init -q {own} && cd {own} && git fetch --depth=1 file://{workspace} --upload-pack={workspace}/python"
    (builders / "kustomize").write_text(f"#!/bin/sh\n{fetch}\n")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{builders}{os.pathsep}{os.environ['PATH']}")
    done = run("check", "good.yaml", "-k", "prod")
    assert done.exit_code == 2
    assert "kustomize: it names what is not in the folder" in done.stderr
    assert nothing_ran(workspace) is True
    subprocess.run([builders / "kustomize"], check=False, capture_output=True, timeout=60)
    assert nothing_ran(workspace) is not True, "so that this test is one"


def test_no_program_that_builds_a_pull_request_reaches_the_network(workspace, builders, monkeypatch):
    """Not even this machine's own services, for which no proxy is asked (the real programs: `e2e/kubernetes/test_trees.py`)."""
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{builders}{os.pathsep}{os.environ['PATH']}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        call = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        (builders / "kustomize").write_text(f"#!{sys.executable}\n{call}\n")
        done = run("check", "good.yaml", "-k", "prod")
        assert done.exit_code == 2
        assert "PermissionError" in done.stderr
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("named", ["--chart=chart", "--chart=link", "-klink", "--config=out.yaml", "--values=out.yaml"])
def test_no_link_leads_a_build_out_of_the_pull_request(workspace, builders, named, monkeypatch):
    secret = workspace.parent / "secret"
    a_chart(secret)
    (secret / "out.yaml").write_text("SECRET: {")
    a_chart(workspace / "chart")
    (workspace / "chart" / "templates" / "x").symlink_to(secret / "out.yaml")
    a_chart(workspace / "good")
    (workspace / "link").symlink_to(secret)
    (workspace / "out.yaml").symlink_to(secret / "out.yaml")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{builders}{os.pathsep}{os.environ['PATH']}")
    also = ["--chart=good"] if named.startswith("--values") else []
    done = run("check", "good.yaml", named, *also)
    assert done.exit_code == 2, done.output
    assert "leads out of the folder" in done.output
    assert "SECRET" not in done.output
    assert not (workspace.parent / "helm").exists()
    assert not (workspace.parent / "kustomize").exists()


def ordinary(name, folder):
    """A repository of a usual shape in which nothing is wrong, and its files as git lists them."""
    written({file: text for file, text in TREES[name].items() if "# refused" not in text}, folder)
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".json")
    )


@pytest.mark.parametrize("name", ["application", "chart", "overlay"])
def test_an_ordinary_repository_passes_the_action(name, workspace, python):
    (workspace / "bad.yaml").unlink()
    ordinary(name, workspace)
    done = act(workspace, python)
    assert done.returncode == 0, done.stdout
    assert "::error" not in done.stdout
    assert nothing_ran(workspace) is True


@pytest.mark.parametrize("name", ["application", "chart", "overlay"])
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_an_ordinary_repository_passes_the_hooks(name, hook, workspace, builders):
    (workspace / "bad.yaml").unlink()
    files = ordinary(name, workspace)
    if "types" in hook:  # YAML alone
        files = [file for file in files if not file.endswith(".json")]
    entry = [*shlex.split(hook["entry"]), *hook["args"], *files]
    # The builds before and after an edit are compared by a program that is not on every machine.
    search = [BIN, builders] if "translate" in hook["id"] else [BIN]
    env = {"PATH": os.pathsep.join(map(str, [*search, os.environ["PATH"]]))}
    done = subprocess.run(entry, cwd=workspace, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert nothing_ran(workspace) is True


@pytest.mark.parametrize("path", [f".{os.pathsep}", None])
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_nothing_of_the_repository_that_it_is_run_in(workspace, hook, path):
    (workspace / "-x.yaml").write_text(BAD)
    (workspace / "-kcli").mkdir()
    (workspace / "-kcli" / "y.yaml").write_text(BAD)
    entry = [*shlex.split(hook["entry"]), *hook["args"], "bad.yaml", "-x.yaml", "-kcli/y.yaml"]
    env = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONSTARTUP": "conftest.py"}
    if path is not None:
        env["PYTHONPATH"] = path
    done = subprocess.run(entry, cwd=workspace, env=env, capture_output=True, text=True, check=False)
    assert nothing_ran(workspace) is True
    if hook["id"] == "drawbridge-check":
        assert done.returncode == 1, done.stderr
        for name in ("bad.yaml", "-x.yaml", "-kcli/y.yaml"):
            assert f"({name})" in done.stdout
    else:
        assert done.returncode == 0, done.stderr


def test_the_command_itself_imports_nothing_from_where_it_is_run(workspace):
    done = subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "drawbridge", "check", "bad.yaml"],
        cwd=workspace,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert nothing_ran(workspace) is True
