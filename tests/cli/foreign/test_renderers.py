"""Charts and kustomizations of an untrusted workspace: only installed programs render them, and reach no network and no outside file."""

import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from tests.cli.foreign.runner import nothing_ran, run_action
from tests.cli.running import run


def write_chart(folder):
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    (folder / "templates" / "bad.yaml").write_text("{{ .Values }}\n")


def test_the_action_renders_charts_and_kustomizations_and_annotates_existing_files(workspace, python, renderers):
    write_chart(workspace / "my chart")
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    (workspace / "a,b.yaml").write_text("a: 1\n")
    (workspace / "config.yaml").write_text("apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n")
    search = f"{renderers}{os.pathsep}{os.environ['PATH']}"
    result = run_action(
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
    assert result.returncode == 1, result.stdout
    annotated = re.findall(r"^::error file=(.*?),line=(\d+),", result.stdout, re.MULTILINE)
    assert annotated == [("prod/kustomization.yaml", "1"), ("my chart/templates/bad.yaml", "1")]
    assert (workspace.parent / "kustomize").read_text().splitlines() == ["build", str(workspace / "prod")]
    assert (workspace.parent / "helm").read_text().splitlines() == [
        *("template", "--kube-version=1.35", "--api-versions=resource.k8s.io/v1", "--namespace=team"),
        *(f"--values={workspace}/good.yaml", f'--values="{workspace}/a,b.yaml"'),
        *("--", "release-name", str(workspace / "my chart")),
    ]
    assert nothing_ran(workspace) is True


@pytest.mark.whole
def test_no_program_of_the_pull_request_renders_its_charts(workspace, python):
    write_chart(workspace / "chart")
    (workspace / "bin").mkdir()
    for folder in (workspace, workspace / "bin"):
        for name in ("helm", "kubectl", "kustomize"):
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> {workspace.parent / 'ran'}\n")
            (folder / name).chmod(0o755)
    # A folder with the tools that the action needs, but without helm, kubectl and kustomize.
    tools = workspace.parent / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "mktemp"):
        (tools / name).symlink_to(shutil.which(name))
    path = os.pathsep.join((".", "", "bin", str(workspace), f"{workspace}/bin", f"{tools}"))
    result = run_action(workspace, python, path, paths="", chart="chart", kustomize="chart")
    assert result.returncode == 2
    assert "helm is not installed" in result.stdout
    assert "nor kubectl is installed" in result.stdout
    assert nothing_ran(workspace) is True


def test_no_remote_base_makes_git_execute_a_program(workspace, renderers, monkeypatch):
    """For a base at `file:///REPOSITORY?ref=--upload-pack=PROGRAM`, kustomize runs the fetch command, and git executes PROGRAM.

    e2e/kubernetes/test_trees.py runs the real kustomize.
    """
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    other_repository = workspace.parent / "own"
    fetch_command = f"git fetch --depth=1 file://{workspace} --upload-pack={workspace}/python"
    program = f"#!/bin/sh\ngit init -q {other_repository} && cd {other_repository} && {fetch_command}\n"
    (renderers / "kustomize").write_text(program)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{renderers}{os.pathsep}{os.environ['PATH']}")
    result = run("check", "good.yaml", "-k", "prod")
    assert result.exit_code == 2
    assert "kustomize: the folder refers to a remote address" in result.stderr
    assert nothing_ran(workspace) is True
    subprocess.run([renderers / "kustomize"], check=False, capture_output=True, timeout=60)
    assert nothing_ran(workspace) is not True, "the fetch command of this test executes nothing"


def test_no_renderer_reaches_the_network(workspace, renderers, monkeypatch):
    """A renderer cannot reach services of this machine either, for which no proxy is used.

    e2e/kubernetes/test_trees.py runs the real programs.
    """
    (workspace / "prod").mkdir()
    (workspace / "prod" / "kustomization.yaml").write_text("resources: []\n")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{renderers}{os.pathsep}{os.environ['PATH']}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection_attempt = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        (renderers / "kustomize").write_text(f"#!{sys.executable}\n{connection_attempt}\n")
        result = run("check", "good.yaml", "-k", "prod")
        assert result.exit_code == 2
        assert "PermissionError" in result.stderr
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "option", ["--chart=chart", "--chart=link", "-klink", "--config=out.yaml", "--values=out.yaml"]
)
def test_no_link_leads_a_renderer_out_of_the_pull_request(workspace, renderers, option, monkeypatch):
    secret = workspace.parent / "secret"
    write_chart(secret)
    (secret / "out.yaml").write_text("SECRET: {")
    write_chart(workspace / "chart")
    (workspace / "chart" / "templates" / "x").symlink_to(secret / "out.yaml")
    write_chart(workspace / "good")
    (workspace / "link").symlink_to(secret)
    (workspace / "out.yaml").symlink_to(secret / "out.yaml")
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("PATH", f"{renderers}{os.pathsep}{os.environ['PATH']}")
    chart_option = ["--chart=good"] if option.startswith("--values") else []
    result = run("check", "good.yaml", option, *chart_option)
    assert result.exit_code == 2, result.output
    assert "leads out of the folder" in result.output
    assert "SECRET" not in result.output
    assert not (workspace.parent / "helm").exists()
    assert not (workspace.parent / "kustomize").exists()
