"""kubectl and a real API server agree with `drawbridge check` about repositories (tests/cli/commands/test_check_trees.py)."""

import os
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which
from threading import Thread

import pytest

from cluster.manifests import read_leniently
from e2e.build import program
from tests.cli.running import run, run_json
from tests.corpus.trees import TREES, write_tree

pytestmark = pytest.mark.real


@pytest.mark.parametrize("name", TREES)
def test_the_server_refuses_what_the_corpus_marks_invalid(control_plane, created, name, tmp_path):
    marks = write_tree(TREES[name], tmp_path)
    documents, _ = read_leniently([tmp_path])
    created(*(document.object for document in documents if document.object.get("kind") == "Namespace"))
    differences = []
    for (file, line), expected in marks.items():
        if expected == "passed by":
            continue
        lines = (tmp_path / file).read_text().splitlines()[line - 1 :]
        text = "\n".join(lines[: lines.index("---")] if "---" in lines else lines)
        done = control_plane.kubectl(
            "create", "--dry-run=server", "--validate=ignore", "-f", "-", input=text, check=False
        )
        refused = done.returncode != 0 and "AlreadyExists" not in done.stderr
        if refused != bool(expected):
            differences.append((file, line, expected, done.stderr))
    assert differences == []


# A function of a kustomization can run this program, if plugins are enabled.
FUNCTION = """\
apiVersion: example.com/v1
kind: Evil
metadata:
  name: evil
  annotations:
    config.kubernetes.io/function: |
      exec: {path: ./evil.sh}
"""
CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: NAME}\nspec: {}\n"


@pytest.mark.parametrize("role", ["generators", "transformers", "validators"])
def test_kustomize_runs_no_program_of_the_folder_it_builds(role, tmp_path, monkeypatch):
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    (tmp_path / "function.yaml").write_text(FUNCTION)
    (tmp_path / "kustomization.yaml").write_text(f"{role}: [function.yaml]\n")
    monkeypatch.setenv("PATH", str(program("kubectl").parent))
    done = run("check", "-k", tmp_path)
    assert done.exit_code == 2
    assert "kubectl: " in done.stderr
    assert not (tmp_path / "ran").exists()


def test_git_under_kustomize_runs_no_program_named_as_a_revision(tmp_path, monkeypatch):
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    base = f"file://{tmp_path}/repository?ref=--upload-pack={evil}"
    (tmp_path / "kustomization.yaml").write_text(f"resources: ['{base}']\n")
    git = str(Path(which("git") or "").parent)
    monkeypatch.setenv("PATH", os.pathsep.join((str(program("kubectl").parent), git)))
    done = run("check", "-k", tmp_path)
    assert done.exit_code == 2
    assert "remote address" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def listener():
    """An address of this machine, like a service of a CI runner, and the requests to it."""
    paths = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"secret": 1}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


# Files of a folder besides its kustomization or chart, with the address that they name.
ASKING = {
    "resource": {"kustomization.yaml": "resources: [ADDRESS/a]\n"},
    "metadata": {"kustomization.yaml": "resources: ['http://169.254.169.254/latest/meta-data']\n"},
    "submodule": {"kustomization.yaml": "resources: ['git::ADDRESS/a.git?ref=main']\n", ".gitmodules": '[submodule "a"]\n\tpath = a\n\turl = ext::sh -c touch% ran\n\tupdate = !touch ran\n'},
    "generator": {"kustomization.yaml": "configMapGenerator: [{name: a, files: ['k=ADDRESS/a']}]\n"},
    "plugin": {"kustomization.yaml": "generators: [g.yaml]\n", "g.yaml": "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: x}\nfiles: ['k=ADDRESS/a']\n"},
    "schema": {"kustomization.yaml": "openapi: {path: ADDRESS/a}\n"},
    "chart": {"Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n", "values.schema.json": '{"$ref": "ADDRESS/a"}', "values.yaml": "a: 1\n", "templates/x.yaml": ""},
}  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_no_build_contacts_an_address_that_a_folder_names(name, listener, tmp_path, monkeypatch):
    address, paths = listener
    write_tree({file: text.replace("ADDRESS", address) for file, text in ASKING[name].items()}, tmp_path)
    git = str(Path(which("git") or "").parent)
    path = os.pathsep.join((str(program("helm").parent), str(program("kubectl").parent), git))
    monkeypatch.setenv("PATH", path)
    done = run("check", "--chart" if name == "chart" else "-k", tmp_path)
    assert done.exit_code == 2
    assert "remote address" in done.stderr
    assert paths == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            '{{ repeat 3000000000 "x" }}',
            r"helm: .*out of memory.* \(build the folder elsewhere and pipe the result in: -f -\)",
        ),
        (
            '{{ fail "not in this namespace" }}',
            r"helm: .*not in this namespace.* \(give the values .* --values, .* with -n\)",
        ),
    ],
    ids=["it exhausts memory", "it requires values"],
)
def test_a_chart_that_fails_gets_the_remedy_for_its_cause(template, message, tmp_path, monkeypatch):
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    (tmp_path / "templates" / "one.yaml").write_text(f"{template}\n")
    monkeypatch.setenv("PATH", str(program("helm").parent))
    done = run("check", "--chart", tmp_path)
    assert done.exit_code == 2
    assert re.search(message, done.stderr)


def test_charts_and_kustomizations_are_built_and_findings_name_existing_files(tmp_path, monkeypatch):
    chart = tmp_path / "my chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text('apiVersion: v2\nname: app\nversion: 1.0.0\nkubeVersion: ">=1.35.0-0"\n')
    (chart / "values.yaml").write_text("name: fine\n")
    (chart / "templates" / "class.yaml").write_text(
        CLASS.replace("NAME", "{{ .Values.name }}-{{ .Release.Namespace }}")
    )
    (tmp_path / "bad,values.yaml").write_text("name: B_A_D\n")
    (tmp_path / "class.yaml").write_text(CLASS.replace("NAME", "fine"))
    (tmp_path / "kustomization.yaml").write_text("resources: [class.yaml]\nnamePrefix: B_A_D\n")
    paths = (str(program("helm").parent), str(program("kubectl").parent))
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    monkeypatch.chdir(tmp_path)
    assert run("check", "--chart", chart).exit_code == 0
    code, answer = run_json(
        *("check", "-n", "team", "--kubernetes", "1.36"),
        *("-k", ".", "--chart", "my chart", "--values", "bad,values.yaml"),
    )
    assert code == 1
    findings = [
        (finding["object"], finding["place"]["file"], finding["place"]["line"])
        for finding in answer["findings"]
        if finding["severity"] == "error"
    ]
    assert findings == [
        ("DeviceClass/B_A_Dfine", "kustomization.yaml", 1),
        ("DeviceClass/B_A_D-team", "my chart/templates/class.yaml", 1),
    ]
    assert all((tmp_path / file).is_file() for _, file, _ in findings)
