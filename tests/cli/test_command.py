"""All commands exit with 0, 1, 2 or 3, and `-o json` always prints exactly one document on stdout."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from analysis.errors import Broken, Failed
from cli import options
from cli.command import declare
from cli.exits import Exit
from tests.cli.running import run
from tests.cluster.hostile import odd_objects

VALID_CLASS = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"


def json_on_stdout(result):
    """Return the JSON document on stdout, which must be the only output there."""
    return json.loads(result.stdout)


def test_a_missing_input_exits_with_2():
    result = run("check", "-o", "json")
    assert result.exit_code == 2
    assert json_on_stdout(result)["findings"] == []
    assert "nothing to check" in json_on_stdout(result)["errors"][0]["message"]
    assert "nothing to check" in result.stderr


@pytest.mark.parametrize("output_options", [["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "json"]])
def test_every_spelling_of_json_output_reports_an_unknown_option(output_options):
    result = run("check", *output_options, "--bogus")
    assert result.exit_code == 2
    assert "--bogus" in json_on_stdout(result)["errors"][0]["message"]


def test_without_json_output_errors_go_only_to_stderr():
    result = run("check", "--bogus")
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_unknown_output_format_exits_with_2():
    result = run("check", "-f", "-", "-o", "jsno", stdin=VALID_CLASS)
    assert result.exit_code == 2
    assert "did you mean json?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["explain", "notebook", "--context", "x"], "such as pod/notebook"),
        (["test", "-"], "-:1:1: unknown field 'apiVersion'"),
        (["free", "--kubeconfig", "/nowhere"], "or read files with -f"),
    ],
)
def test_an_error_names_its_place_or_a_remedy(arguments, text):
    assert text in run(*arguments, stdin=VALID_CLASS).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "did you mean check"),
        (["xyz"], "xyz"),
        (["--verison"], "--version"),
        (["check", "--inventroy"], "--inventory"),
        (["check", "-f", ""], "a name among the files is empty"),
        (["check", "-f", "-", "-n", "Team_A"], "the namespace 'Team_A' must be a DNS label"),
        (["survey", "-f", "-", "--probe"], "-f excludes --probe"),
        (["doctor", "-f", "-", "--context", "x"], "-f excludes --kubeconfig and --context"),
        (["webhook", "--notice", "high"], "'high' is not a number"),
        (["simulate", "-f", "-", "--budget-ms", "1.5"], "'1.5' is not a whole number"),
        (["manifests", "--imag", "x"], "no such option '--imag': did you mean --image?"),
        (
            ["manifests", "--set", "a=b"],
            "no such option '--set': did you mean --values? (see `drawbridge manifests --help`)",
        ),
        (["dashboard", "--port", "1"], "no such option '--port': did you mean --listen?"),
        (["check", "--port", "1"], "no such option '--port' (see `drawbridge check --help`)"),
        (["completion"], "missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish"),
    ],
)
def test_an_invalid_argument_is_reported_on_one_line(arguments, message):
    result = run(*arguments, stdin=VALID_CLASS)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    "text",
    ["kind: Pod\nmetadata: {name: a\n", '{"kind": "Pod", "metadata": {"name": "a"', "spec: [\nkind: Pod\n"],
)
def test_a_broken_manifest_without_an_apiversion_is_not_skipped(text, tmp_path):
    (tmp_path / "pod.yaml").write_text(text)
    result = run("check", str(tmp_path))
    assert result.exit_code == 2
    assert "pod.yaml:" in result.stderr
    assert "skipped" not in result.stdout


def test_an_error_of_uninstall_does_not_suggest_files():
    assert "-f" not in run("uninstall", "--kubeconfig", "/nowhere").stderr


def test_without_a_command_the_help_is_printed():
    assert run().exit_code == 0
    assert run().stdout == run("--help").stdout


def test_broken_yaml_names_file_line_and_remedy(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("apiVersion: 1\nb: 'x\n---\napiVersion: [1\n")
    result = run("check", "-f", str(file), "-o", "json")
    assert result.exit_code == 2
    first, second = json_on_stdout(result)["errors"]
    assert (first["file"], first["line"]) == (str(file), 3)
    assert "never closed" in first["remedy"]
    assert second["line"] == 5
    assert f"error: {file}:3:" in result.stderr


def test_standard_input_is_read_only_once():
    result = run("check", "-f", "-", "-f", "-", stdin=VALID_CLASS)
    assert result.exit_code == 2
    assert "more than once" in result.stderr
    assert run("check", "-f", "-", "--inventory", "-", stdin=VALID_CLASS).exit_code == 2


def test_missing_files_and_empty_directories_exit_with_2(tmp_path):
    assert run("check", "-f", str(tmp_path / "gone.yaml")).exit_code == 2
    result = run("check", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert "no manifests in this directory" in result.stderr


def test_a_file_that_cannot_be_read_exits_with_2(tmp_path):
    file = tmp_path / "loop.yaml"
    file.symlink_to(file)
    for path in (file, tmp_path):
        result = run("check", "-f", str(path))
        assert result.exit_code == 2
        assert "loop.yaml: cannot be read" in result.stderr


def command_with_outcome(outcome):
    """Return a command that raises or returns this outcome."""

    @declare("try")
    @options.output("text", "json", default="text")
    def finish(output):
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return finish


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (None, 0),
        (Exit.FINE, 0),
        (Exit.REFUSED, 1),
        (Exit.UNDECIDED, 3),
        (Broken("bad", "fix it"), 2),
        (Failed("the world ended", "wait"), 3),
        (click.UsageError("no"), 2),
        (ConnectionRefusedError(111, "Connection refused"), 3),
        (KeyError("oops"), 3),
    ],
)
def test_each_outcome_has_its_exit_code(outcome, code):
    result = CliRunner().invoke(command_with_outcome(outcome), ["-o", "json"])
    assert result.exit_code == code
    if isinstance(outcome, Exception):
        assert json.loads(result.stdout).keys() == {"errors"}
        assert result.stderr


def test_a_bug_is_reported_with_its_traceback():
    result = CliRunner().invoke(command_with_outcome(KeyError("oops")), [])
    assert "bug in drawbridge" in result.stderr
    assert "Traceback" in result.stderr


def test_expected_errors_of_several_tasks_are_reported_once():
    """Two listeners of a process have the same error: another process uses their address."""
    message = "Address already in use (127.0.0.1:1)"
    listener_errors = [ExceptionGroup("listener", [OSError(errno.EADDRINUSE, message)]) for _ in range(2)]
    result = CliRunner().invoke(
        command_with_outcome(ExceptionGroup("tasks", [*listener_errors, Failed("no kubeconfig", "name one")])),
        [],
    )
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"error: environment: {message} (stop the process that uses this address, or choose another one)",
        "error: no kubeconfig (name one)",
    ]
    result_with_bug = CliRunner().invoke(
        command_with_outcome(ExceptionGroup("tasks", [KeyError("oops"), Broken("no")])), []
    )
    assert result_with_bug.exit_code == 3
    assert "bug in drawbridge: KeyError" in result_with_bug.stderr
    assert "error: no" in result_with_bug.stderr


def test_a_closed_output_is_not_a_bug():
    """`drawbridge check | head -1` ends without an error."""
    text = "---\n".join(VALID_CLASS.replace("spec: {}", "spec: {bogus: 1}") for _ in range(700))
    result = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -c 'from cli import begin; begin()' check -f - | head -1; exit ${{PIPESTATUS[0]}}",
        ],
        input=text,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert (result.returncode, "Traceback" in result.stderr) == (141, False)
    assert result.stdout.startswith("700 objects checked: 700 errors")


CONFIGURATION_HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"


def arguments_of_commands(tmp_path):
    """Yield the arguments of six commands that accept --config and stop at an error in that file."""
    pod = tmp_path / "pod.yaml"
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n")
    yield ["translate", "-f", str(pod)]
    yield ["dialects"]
    yield ["manifests", "--image", "example.com/drawbridge"]
    yield ["demo", "-f", str(pod), "--once"]
    yield ["standalone"]
    yield ["webhook", "--kubeconfig", str(tmp_path / "none")]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (
            CONFIGURATION_HEAD + "canary: 300\nmode: loud\n",
            [":3:1: 300 is not from 0 to 100 at /canary", ":4:1: the text 'loud'"],
        ),
        (CONFIGURATION_HEAD + "---\nkind: ConfigMap\n", [": a configuration file holds one DrawbridgeConfiguration"]),
        ("kind: ConfigMap\ndata: {drawbridge.yaml: ''}\n", [":1: this is a ConfigMap"]),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", [":1: this is a Pod, not a DrawbridgeConfiguration"]),
        (CONFIGURATION_HEAD + "mode: warn\nmode: enforce\n", [":4: the key 'mode' is given twice (remove one of them"]),
        (
            CONFIGURATION_HEAD + "hami: {depth: 1}\n",
            ["unknown field 'depth' at /hami/depth (remove the field or correct its name: `draw"],
        ),
        ("mode: [\n", [":2:1: "]),
        ("", ["this one holds no object"]),
    ],
)
def test_six_commands_report_the_same_configuration_errors(tmp_path, content, texts):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    messages = set()
    for arguments in arguments_of_commands(tmp_path):
        result = run(*arguments, "--config", str(file))
        assert result.exit_code == 2, (arguments, result.output)
        messages.add(result.stderr)
    (text,) = messages
    assert all(expected_text in text for expected_text in texts), text
    assert text.count("error: ") >= len(texts)


def test_a_configuration_among_manifests_has_the_same_errors(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(CONFIGURATION_HEAD + "mode: warn\nmode: enforce\nhami: {depth: 1}\n")
    by_option = run("translate", "-f", "-", "--config", str(file), stdin=VALID_CLASS)
    among_files = run("translate", "-f", "-", "-f", str(file), stdin=VALID_CLASS)
    assert by_option.stderr == among_files.stderr
    assert by_option.stderr.count("\n") == 2


# By command: its arguments before the file, and a text about the objects of readable files.
COMMANDS_WITH_AN_UNREADABLE_FILE = {
    "check": (["check"], "D102"),
    "translate": (["translate"], "name: Bad_Name"),
    "survey": (["survey"], "no workload requests a device"),
    "simulate claims": (["simulate", "--claims"], ""),
    "explain": (["explain", "pod", "p"], "pod default/p"),
    "check in Markdown": (["check", "-o", "markdown"], "Not read, so this report may be incomplete"),
}


@pytest.mark.parametrize("case", COMMANDS_WITH_AN_UNREADABLE_FILE)
def test_an_unreadable_file_is_named_and_the_other_files_are_read(case, tmp_path):
    """The folder also has a chart's template and a binary file with a YAML suffix."""
    arguments, text = COMMANDS_WITH_AN_UNREADABLE_FILE[case]
    (tmp_path / "a.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"
    )
    (tmp_path / "b.yaml").write_text("{{- if .Values.gpu }}\nkind: Pod\n{{- end }}\n")
    (tmp_path / "c.yaml").write_bytes(b"\x89PNG\xff\xfe\x00")
    (tmp_path / "d.yaml").write_text(VALID_CLASS.replace("name: gpu", "name: Bad_Name"))
    (tmp_path / "e.yaml").write_text("apiVersion: [1")
    result = run(*arguments, "-f", tmp_path)
    assert result.exit_code == 2
    assert text in result.stdout
    assert f"error: {tmp_path}/e.yaml:" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    if "markdown" not in arguments:
        errors = json_on_stdout(run(*arguments, "-f", tmp_path, "-o", "json"))["errors"]
        assert [Path(error["file"]).name for error in errors if "file" in error] == ["e.yaml"]


def test_skipped_documents_have_their_reason(tmp_path):
    (tmp_path / "b.yaml").write_text("{{- if .Values.gpu }}\nkind: Pod\n{{- end }}\n")
    (tmp_path / "c.yaml").write_bytes(b"\x89PNG\xff\xfe\x00")
    documents = json_on_stdout(run("check", "-f", tmp_path, "-o", "json"))["skippedDocuments"]
    assert {(Path(skip["file"]).name, skip["reason"]) for skip in documents} == {
        ("b.yaml", "template"),
        ("c.yaml", "other"),
    }


@pytest.fixture(scope="module")
def malformed_file(tmp_path_factory):
    """A file with all malformed manifests of `odd_objects`."""
    file = tmp_path_factory.mktemp("odd") / "odd.yaml"
    file.write_text("\n---\n".join(json.dumps(obj) for obj in odd_objects()))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "exit_codes"),
    [
        (["check", "-f"], {2}),
        (["translate", "-o", "json", "-f"], {2}),
        (["simulate", "-f"], {3}),
        (["simulate", "--claims", "-f"], {3}),
        (["demo", "--once", "-f"], {1}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_malformed_manifest_causes_no_exception(arguments, exit_codes, malformed_file):
    result = run(*arguments, malformed_file)
    assert "bug in drawbridge" not in result.output, result.output[-2000:]
    assert result.exit_code in exit_codes
