"""Input from positional files, -f, -k and URLs; files that are skipped; source comments of rendered input; output, completion, manual."""

import gc
import http.server
import json
import sys
import threading
from pathlib import Path

import pytest

from cli import outside
from cluster.manifests import documents, json_reader, yaml_reader
from tests.cli.running import run, run_json

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {containers: [{name: a, image: b}]}\n"
TEMPLATE_EXPRESSION = "{{ not: yaml"


def names_in(code_and_answer):
    """Return the exit code of a command and the names of the objects that it printed."""
    code, answer = code_and_answer
    return code, [obj["metadata"]["name"] for obj in answer["items"]]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "chart").mkdir()
    for name in ("a", "b", "chart/values", "chart/c"):
        (tmp_path / f"{name}.yaml").write_text(POD.replace("NAME", name.rpartition("/")[2]))
    return tmp_path


def test_positional_files_are_read_after_the_files_of_f(folder):
    assert names_in(run_json("translate", folder / "b.yaml", "-f", folder / "a.yaml")) == (0, ["a", "b"])


@pytest.mark.parametrize("command", ["translate", "check", "simulate", "survey"])
def test_an_input_without_objects_is_reported_without_an_error(command):
    result = run(command, "-", stdin="")
    assert (result.exit_code, result.stderr) == (0, "warning: the input holds no objects\n")


@pytest.mark.parametrize("command", ["translate", "survey"])
def test_a_misspelt_kind_is_reported_once_with_its_line(command, tmp_path):
    """`check` reports a misspelt kind (D004). No other command may skip the object silently."""
    pod = POD.replace("NAME", "p")
    misspelt_pod = pod.replace("kind: Pod", "kind: pod")
    (tmp_path / "p.yaml").write_text(f"{pod}---\n{misspelt_pod}---\n{misspelt_pod}")
    result = run(command, tmp_path / "p.yaml")
    lines = [line for line in result.stderr.splitlines() if "nothing changes: " not in line]
    assert lines == [f"warning: {tmp_path}/p.yaml:6: v1 has no kind pod, it is called Pod (write kind: Pod)"]


@pytest.mark.parametrize("words", [("on", "Yes", "n"), ("true",)])
def test_kustomize_reads_words_other_than_true_and_false_as_texts(words, tmp_path):
    """kubectl reads `on` as a boolean and refuses the pod; kustomize writes it in quotes."""
    arguments = "\n".join(f"    - {word}" for word in words)
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - name: c\n    image: i\n    args:\n{arguments}\n"
    (tmp_path / "pod.yaml").write_text(pod)
    assert "D001" in run("check", "-f", str(tmp_path)).stdout
    (tmp_path / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    for path in (tmp_path, tmp_path / "pod.yaml"):
        assert ("D001" in run("check", "-f", str(path)).stdout) is (words == ("true",))


def test_a_manifest_with_substitutions_of_sphinx_is_a_template(tmp_path):
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata:\n  name: |name|\nspec: {}\n")
    result = run("check", "-f", str(tmp_path))
    assert (result.exit_code, "skipped, templates in 1 file" in result.stderr) == (0, True)


def test_an_ignore_file_with_too_many_lines_is_refused(folder):
    """A pull request may contain an ignore file; 500,000 lines and 100 files would take more than five minutes."""
    (folder / ".drawbridgeignore").write_text("b\n" * 1_001)
    result = run("translate", folder)
    assert result.exit_code == 2
    assert ".drawbridgeignore: has 1,001 lines, and 1,000 is the maximum" in result.stderr


def test_a_file_that_is_named_twice_is_read_once(folder):
    paths = [folder / "a.yaml", folder, folder, folder / "chart" / ".." / "a.yaml"]
    assert names_in(run_json("translate", *paths)) == (0, ["a", "b", "c", "values"])


def test_excluded_paths_are_skipped(folder):
    assert names_in(run_json("translate", folder, "--exclude", "values.yaml")) == (0, ["a", "b", "c"])
    assert names_in(run_json("translate", folder, "--exclude", "chart/")) == (0, ["a", "b"])
    assert names_in(run_json("translate", folder, "--exclude", "/a.yaml", "--exclude", "chart/*")) == (0, ["b"])


def test_a_folders_ignore_file_excludes_paths(folder):
    (folder / "chart" / "c.yaml").write_text(TEMPLATE_EXPRESSION)
    (folder / ".drawbridgeignore").write_text("# templates\nchart/**\n!chart/values.yaml\n\n")
    assert names_in(run_json("translate", folder)) == (0, ["a", "b", "values"])
    # A file that is named directly is read.
    assert "skipped, templates in 1 file" in run("translate", folder / "chart" / "c.yaml").stderr


@pytest.mark.parametrize(
    ("pattern", "expected_names"),
    [
        ("*.yaml", []),
        ("?.yaml", ["values"]),
        ("[ab].yaml", ["values", "c"]),
        ("[!ab].yaml", ["a", "b", "values"]),
        ("**/c.yaml", ["a", "b", "values"]),
        ("\\#", ["a", "b", "values", "c"]),
        ("[", ["a", "b", "values", "c"]),
    ],
)
def test_patterns_exclude_files_as_git_does(pattern, expected_names, folder):
    code, answer = run_json("translate", folder, "--exclude", pattern)
    read_names = [obj["metadata"]["name"] for obj in answer["items"]]
    assert sorted(read_names) == sorted(expected_names)
    assert code == (0 if expected_names else 2)


def test_a_huge_file_is_refused_before_it_is_read(folder):
    with (folder / "chart" / "sparse.yaml").open("w") as file:
        file.truncate(1 << 40)
    result = run("check", folder)
    assert result.exit_code == 2
    assert "sparse.yaml: the manifests of this folder are larger than 512 MiB" in result.stderr


@pytest.mark.parametrize("form", ["documents", "a list", "files", "a stream"])
@pytest.mark.parametrize("command", ["check", "translate", "survey", "simulate", "quota"])
def test_an_input_with_too_many_objects_is_an_error(command, form, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_OBJECTS", 4)
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}} for number in range(9)]
    if form == "a list":
        objects = [{"apiVersion": "v1", "kind": "List", "items": objects}]
    for number, obj in enumerate(objects):
        with (tmp_path / f"{number if form == 'files' else 0}.yaml").open("a") as file:
            file.write(f"{'' if form == 'a stream' else '---'}\n{json.dumps(obj)}\n")
    result = run(command, tmp_path)
    assert result.exit_code == 2
    assert result.stderr.count("the input has more than 4 objects") == 1
    assert result.stderr.count("error: ") == 2  # the other error: the answer is incomplete


def test_a_stream_is_read_only_up_to_the_limit():
    text = b'{"a":1}\n' * 1000
    assert len(json_reader.stream(text, 4)) == 5, "one object above the limit shows the caller that there are more"
    assert len(json_reader.stream(text, 1000)) == 1000


@pytest.mark.parametrize(
    "text", ["- a\n" * 2000, f"[{','.join(['{}'] * 1000)}]", f"[{'[],' * 1000}]"], ids=["lines", "objects", "lists"]
)
@pytest.mark.parametrize("command", ["check", "translate", "survey", "simulate"])
def test_a_file_with_too_many_members_is_not_read(command, text, tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_MEMBERS_CUT_DOWN" if command in ("survey", "simulate") else "MAX_MEMBERS", 1000)
    Path(tmp_path, "a.yaml").write_text("kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n")
    Path(tmp_path, "large.yaml").write_text(f"kind: ConfigMap\napiVersion: v1\nmetadata: {{name: large}}\nx:\n{text}")
    # `load` fails if it gets the text of large.yaml.
    monkeypatch.setattr(yaml_reader, "load", lambda *args, load=yaml_reader.load: load(*args) if len(args[0]) < 100 else 1 / 0)  # fmt: skip
    result = run(command, tmp_path)
    assert result.exit_code == 2
    assert (
        result.stderr.count("large.yaml: is not read: with this file, the input has more than 1,000 lines and members")
        == 1
    )
    assert any(
        summary in result.stdout for summary in ("name: a", "1 object checked", "Read: 1 object", "no pending pods")
    )


RENDERED = """\
---
# Source: shop/templates/pod.yaml
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 1500m}}}
---
# Source: ../../etc/passwd
apiVersion: v1
kind: Pod
metadata: {name: b}
spec:
  containers:
  - {name: a, image: b, resources: {limits: {nvidia.com/gpu: 1500m}}}
"""


@pytest.mark.parametrize("command", ["check", "translate", "survey"])
def test_findings_of_rendered_input_name_the_template_file(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = run(command, "-f", "-", "-o", "github", stdin=RENDERED).stdout.splitlines()
    assert "file=" not in lines[0]  # GitHub does not show annotations of files that the checkout does not have
    template = tmp_path / "shop" / "templates" / "pod.yaml"
    template.parent.mkdir(parents=True)
    template.touch()
    lines = run(command, "-f", "-", "-o", "github", stdin=RENDERED).stdout.splitlines()
    assert "file=shop/templates/pod.yaml,line=1," in lines[0]
    assert "passwd" not in lines[-1]
    findings = json.loads(run("check", "-f", "-", "-o", "json", stdin=RENDERED).stdout)["findings"]
    assert [finding["place"]["file"] for finding in findings if "a" in finding["object"].split("/")] == [
        "shop/templates/pod.yaml"
    ]


class Site(http.server.BaseHTTPRequestHandler):
    """A web site with a manifest, a page that is too large, and redirects."""

    def do_GET(self):
        if self.path in ("/loop", "/file"):
            self.send_response(302)
            self.send_header("Location", {"/loop": "/loop", "/file": "ftp://127.0.0.1/pod.yaml"}[self.path])
            self.end_headers()
            return
        self.send_response(404 if self.path == "/none" else 200)
        self.end_headers()
        try:
            self.wfile.write(b"#" * 300_000 if self.path == "/large" else POD.replace("NAME", "web").encode())
        except OSError:
            return

    def log_message(self, *arguments):
        pass


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_read_like_a_file(site):
    assert names_in(run_json("translate", "-f", f"{site}/pod.yaml")) == (0, ["web"])


@pytest.mark.parametrize(
    ("path", "reason"), [("/loop", "redirect"), ("/file", "not fetched"), ("/none", "404"), ("/large", "larger than")]
)
def test_an_unusable_url_is_reported_and_the_rest_is_read(path, reason, site, folder, monkeypatch):
    monkeypatch.setattr(outside, "MAX_BYTES", 100_000)
    code, answer = run_json("translate", f"{site}{path}", folder / "a.yaml")
    assert (code, len(answer["items"])) == (2, 1)
    [error] = answer["errors"]
    assert reason in error["message"].lower() or reason in error["message"]
    assert "download the manifests" in error["remedy"].lower()


@pytest.mark.parametrize("path", ["/loop", "/file", "/none", "/large"])
def test_a_failed_download_leaves_no_connection_open(path, site, monkeypatch):
    monkeypatch.setattr(outside, "MAX_BYTES", 100_000)
    unraisable_errors = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable_errors.append)
    with pytest.raises(outside.ManifestError):
        outside.fetch(f"{site}{path}")
    gc.collect()
    assert [str(unraisable.exc_value) for unraisable in unraisable_errors] == []


def test_credentials_in_a_url_are_neither_sent_nor_shown(site):
    result = run("translate", "-f", site.replace("http://", "http://me:secret@"))
    assert result.exit_code == 2
    assert "credentials" in result.stderr
    assert "secret" not in result.stderr


def test_an_unreachable_url_exits_with_2():
    result = run("translate", "-f", "http://127.0.0.1:9/pod.yaml")
    assert result.exit_code == 2
    assert "cannot be fetched" in result.stderr


def write_program(folder, name, script):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_a_kustomization_is_built_with_the_installed_tool(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    result = run("translate", "-k", tmp_path)
    assert result.exit_code == 2
    assert "neither kustomize nor kubectl" in result.stderr
    built = POD.replace("NAME", "built").replace("\n", "\\n")
    write_program(programs, "kubectl", f'[ "$1" = kustomize ] && [ "$2" = "{tmp_path}" ] && printf "{built}"')
    assert names_in(run_json("translate", "-k", tmp_path)) == (0, ["built"])
    write_program(programs, "kustomize", "echo first >&2; echo 'no kustomization.yaml' >&2; exit 1")
    failed = run("translate", "-k", tmp_path)
    assert failed.exit_code == 2
    assert "kustomize: no kustomization.yaml (name a folder with a kustomization.yaml)" in failed.stderr
    write_program(
        programs,
        "kustomize",
        """echo 'E1125 14:40 57 run.go:72] "command failed" err="security; \\"a\\" is above"' >&2; exit 1""",
    )
    logged = run("translate", "-k", tmp_path)
    assert (
        'kustomize: security; "a" is above (build the folder elsewhere and pipe the result in: -f -)' in logged.stderr
    )


@pytest.fixture
def gpu_file(tmp_path):
    limits = "{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}"
    (tmp_path / "p.yaml").write_text(POD.replace("NAME", "p").replace("{name: a, image: b}", limits))
    return tmp_path / "p.yaml"


def test_quiet_hides_notes_and_shows_errors(gpu_file, tmp_path):
    assert "assumed" in run("translate", "-f", gpu_file).stderr
    assert run("translate", "-q", "-f", gpu_file).stderr == ""
    assert "error" in run("translate", "-q", "-f", tmp_path / "gone").stderr


def test_colour_needs_a_terminal_or_the_option(gpu_file):
    assert "\x1b[" not in run("survey", "-f", gpu_file).stdout
    assert "\x1b[32m" in run("survey", "-f", gpu_file, "--color", "always").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell):
    output = run("completion", shell).stdout
    assert "_DRAWBRIDGE_COMPLETE" in output
    assert "\\x0a" not in output
    assert "drawbridge" in output


def test_commands_and_options_complete(monkeypatch):
    from click.shell_completion import ShellComplete

    from cli.main import main

    shell_complete = ShellComplete(main, {}, "drawbridge", "_DRAWBRIDGE_COMPLETE")
    assert [completion.value for completion in shell_complete.get_completions([], "tr")] == ["translate"]
    assert "--in-place" in [completion.value for completion in shell_complete.get_completions(["translate"], "--in")]
    assert [completion.value for completion in shell_complete.get_completions(["translate", "-o"], "j")] == [
        "json",
        "junit",
    ]
