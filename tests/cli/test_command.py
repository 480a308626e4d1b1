"""The contract of all commands: exit codes 0, 1, 2 and 3, each with exactly one JSON document on stdout."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import options
from cli.command import declare
from rendering.exits import Broken, CommandFailed, Exit
from tests.cli.running import run
from tests.cluster.hostile import odd_objects

GOOD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"


def answer(result):
    """The JSON document on stdout, which must be the only output there."""
    return json.loads(result.stdout)


def test_a_missing_input_exits_with_2():
    result = run("check", "-o", "json")
    assert result.exit_code == 2
    assert answer(result)["findings"] == []
    assert "nothing to check" in answer(result)["errors"][0]["message"]
    assert "nothing to check" in result.stderr


@pytest.mark.parametrize("options", [["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "json"]])
def test_an_unknown_option_is_reported_in_json_with_every_spelling(options):
    result = run("check", *options, "--bogus")
    assert result.exit_code == 2
    assert "--bogus" in answer(result)["errors"][0]["message"]


def test_without_json_errors_are_written_to_stderr_only():
    result = run("check", "--bogus")
    assert (result.exit_code, result.stdout) == (2, "")


def test_an_unknown_output_format_exits_with_2():
    result = run("check", "-f", "-", "-o", "jsno", stdin=GOOD)
    assert result.exit_code == 2
    assert "did you mean json?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["chek"], "did you mean check"),
        (["check", "--inventroy"], "--inventory"),
        (["--verison"], "--version"),
        (["xyz"], "xyz"),
    ],
)
def test_a_misspelling_is_reported_on_one_line_with_a_suggestion(arguments, meant):
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert meant in result.stderr


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["explain", "notebook", "-f", "-"], "such as pod/notebook"),
        (["test", "-"], "-:1:1: unknown field 'apiVersion'"),
        (["free", "--kubeconfig", "/nowhere"], "or read files with -f"),
    ],
)
def test_a_common_mistake_is_answered_with_a_remedy(arguments, remedy):
    assert remedy in run(*arguments, stdin=GOOD).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "-f", ""], "a name among the files is empty"),
        (["check", "-f", "-", "-n", "Team_A"], "the namespace 'Team_A' must be a DNS label"),
        (["survey", "-f", "-", "--probe"], "-f excludes --probe"),
        (["webhook", "--notice", "high"], "'high' is not a number"),
        (["simulate", "-f", "-", "--budget-ms", "1.5"], "'1.5' is not a whole number"),
        (["manifests", "--imag", "x"], "no such option '--imag': did you mean --image?"),
        (["manifests", "--set", "a=b"], "no such option '--set' (see `drawbridge manifests --help`)"),
        (["observed", "/nowhere/log"], "/nowhere/log: cannot be read: No such file or directory (check the path)"),
    ],
)
def test_an_invalid_option_value_is_reported_on_one_line(arguments, message):
    result = run(*arguments, stdin=GOOD)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    "broken",
    ["kind: Pod\nmetadata: {name: a\n", '{"kind": "Pod", "metadata": {"name": "a"', "spec: [\nkind: Pod\n"],
)
def test_a_broken_manifest_without_an_apiversion_is_not_skipped(broken, tmp_path):
    (tmp_path / "pod.yaml").write_text(broken)
    result = run("check", str(tmp_path))
    assert result.exit_code == 2
    assert "pod.yaml:" in result.stderr
    assert "skipped" not in result.stdout


def test_commands_that_read_no_files_suggest_none():
    assert "-f" not in run("uninstall", "--kubeconfig", "/nowhere").stderr


def test_without_a_command_the_help_is_printed():
    assert run().exit_code == 0
    assert run().stdout == run("--help").stdout


def test_an_incomplete_answer_ends_with_an_error(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text("apiVersion: [1")
    result = run("check", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert result.stdout.startswith("1 object checked: ")
    assert result.stderr.splitlines()[-1] == "error: 1 problem in the input (see above): the answer is incomplete"


def test_broken_yaml_names_file_line_and_remedy(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("apiVersion: 1\nb: 'x\n---\napiVersion: [1\n")
    result = run("check", "-f", str(file), "-o", "json")
    assert result.exit_code == 2
    first, second = answer(result)["errors"]
    assert (first["file"], first["line"]) == (str(file), 3)
    assert "never closed" in first["remedy"]
    assert second["line"] == 5
    assert f"error: {file}:3:" in result.stderr


def test_standard_input_is_read_only_once():
    result = run("check", "-f", "-", "-f", "-", stdin=GOOD)
    assert result.exit_code == 2
    assert "more than once" in result.stderr
    assert run("check", "-f", "-", "--inventory", "-", stdin=GOOD).exit_code == 2


def test_missing_files_and_empty_directories_are_broken_input(tmp_path):
    assert run("check", "-f", str(tmp_path / "gone.yaml")).exit_code == 2
    result = run("check", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert "no manifests in this directory" in result.stderr


def test_a_file_that_cannot_be_read_is_broken_input(tmp_path):
    file = tmp_path / "loop.yaml"
    file.symlink_to(file)
    for named in (file, tmp_path):
        result = run("check", "-f", str(named))
        assert result.exit_code == 2
        assert "loop.yaml: cannot be read" in result.stderr


def failing_command(failure):
    @declare("try", empty={"answer": None})
    @options.output("text", "json", default="text")
    def fail(output):
        if isinstance(failure, BaseException):
            raise failure
        return failure

    return fail


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (None, 0),
        (Exit.FINE, 0),
        (Exit.REFUSED, 1),
        (Exit.UNDECIDED, 3),
        (Broken("bad", "fix it"), 2),
        (CommandFailed("the world ended", "wait"), 3),
        (click.UsageError("no"), 2),
        (ConnectionRefusedError(111, "Connection refused"), 3),
        (KeyError("oops"), 3),
    ],
)
def test_each_error_has_its_exit_code(failure, code):
    result = CliRunner().invoke(failing_command(failure), ["-o", "json"])
    assert result.exit_code == code
    if isinstance(failure, Exception):
        document = json.loads(result.stdout)
        assert document["answer"] is None
        assert document["errors"]
        assert result.stderr


def test_a_bug_is_reported_with_its_traceback():
    result = CliRunner().invoke(failing_command(KeyError("oops")), [])
    assert "bug in drawbridge" in result.stderr
    assert "Traceback" in result.stderr


def test_expected_errors_of_several_tasks_are_reported_once():
    """Two listeners of a process have the same error: another process uses their address."""
    used = "Address already in use (127.0.0.1:1)"
    both = [ExceptionGroup("door", [OSError(errno.EADDRINUSE, used)]) for _ in range(2)]
    result = CliRunner().invoke(
        failing_command(ExceptionGroup("tasks", [*both, CommandFailed("no kubeconfig", "name one")])), []
    )
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"error: environment: {used} (stop the process that uses this address, or choose another one)",
        "error: no kubeconfig (name one)",
    ]
    mixed = CliRunner().invoke(failing_command(ExceptionGroup("tasks", [KeyError("oops"), Broken("no")])), [])
    assert mixed.exit_code == 3
    assert "bug in drawbridge: KeyError" in mixed.stderr
    assert "error: no" in mixed.stderr


def test_a_closed_output_is_not_a_bug():
    """`drawbridge check | head -1` ends without an error."""
    text = "---\n".join(GOOD.replace("spec: {}", "spec: {bogus: 1}") for _ in range(3000))
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c 'from cli.main import main; main()' check -f - | head -1"],
        input=text,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert "Traceback" not in result.stderr
    assert result.stdout.startswith("DeviceClass/gpu")


def test_the_command_starts_without_heavy_libraries():
    code = "import sys; from cli.commands.check import command; from cli.main import main; print(*sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    assert not {"aiohttp", "yaml", "kubernetes", "asyncio", "ssl", "cryptography"} & set(result.stdout.split())


HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"


def commands_with_a_configuration(tmp_path):
    """Every command with --config, up to the point where it has read the file."""
    pod = tmp_path / "pod.yaml"
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n")
    yield ["translate", "-f", str(pod)]
    yield ["dialects"]
    yield ["manifests", "--image", "example.com/drawbridge"]
    yield ["demo", "-f", str(pod), "--once"]
    yield ["standalone"]
    yield ["webhook", "--kubeconfig", str(tmp_path / "none")]


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (HEAD + "canary: 300\nmode: loud\n", [":3:1: 300 is not a percentage at /canary", ":4:1: the text 'loud'"]),
        (HEAD + "---\nkind: ConfigMap\n", [": a configuration file holds one DrawbridgeConfiguration"]),
        ("kind: ConfigMap\ndata: {drawbridge.yaml: ''}\n", [":1: this is a ConfigMap"]),
        ("apiVersion: v1\nkind: Pod\nspec: {}\n", [":1: this is a Pod, not a DrawbridgeConfiguration"]),
        (HEAD + "mode: warn\nmode: enforce\n", [":4: the key 'mode' is given twice (remove one of them"]),
        (HEAD + "hami: {depth: 1}\n", ["unknown field 'depth' at /hami/depth (remove it or correct its name: `draw"]),
        ("mode: [\n", [":2:1: "]),
        ("", ["this one holds no object"]),
    ],
)
def test_every_command_reports_the_same_configuration_errors(tmp_path, content, places):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    messages = set()
    for arguments in commands_with_a_configuration(tmp_path):
        result = run(*arguments, "--config", str(file))
        assert result.exit_code == 2, (arguments, result.output)
        messages.add(result.stderr)
    (text,) = messages
    assert all(place in text for place in places), text
    assert text.count("error: ") >= len(places)


def test_a_configuration_has_the_same_errors_among_manifests(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "mode: warn\nmode: enforce\nhami: {depth: 1}\n")
    by_option = run("translate", "-f", "-", "--config", str(file), stdin=GOOD)
    among_files = run("translate", "-f", "-", "-f", str(file), stdin=GOOD)
    assert by_option.stderr == among_files.stderr
    assert by_option.stderr.count("\n") == 2


def test_reading_a_configuration_needs_no_web_server(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(HEAD)
    script = "import sys; from cli.main import main; main(standalone_mode=False); print(*sys.modules)"
    arguments = ["dialects", "-o", "json", "--config", str(file)]
    result = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "kubernetes", "cryptography", "prometheus_client"} & set(result.stdout.split())


@pytest.fixture
def mixed(tmp_path):
    """A folder with a chart's template, a binary file with a YAML suffix, a valid manifest, and a manifest with an invalid name."""
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text("{{- if .Values.gpu }}\nkind: Pod\n{{- end }}\n")
    (tmp_path / "c.yaml").write_bytes(b"\x89PNG\xff\xfe\x00")
    (tmp_path / "d.yaml").write_text(GOOD.replace("name: gpu", "name: Bad_Name"))
    return tmp_path


def test_an_unreadable_file_does_not_stop_check(mixed):
    (mixed / "e.yaml").write_text("apiVersion: [1")
    result = run("check", "-f", str(mixed))
    assert result.exit_code == 2
    assert "2 objects checked: 1 error" in result.stdout
    assert f"error: {mixed}/e.yaml:" in result.stderr
    result = run("check", "-f", str(mixed), "-o", "json")
    assert result.exit_code == 2
    assert [Path(error["file"]).name for error in answer(result)["errors"]] == ["e.yaml"]
    passed = {(Path(skip["file"]).name, skip["reason"]) for skip in answer(result)["skippedDocuments"]}
    assert passed == {("b.yaml", "template"), ("c.yaml", "other")}
    assert [finding["code"] for finding in answer(result)["findings"]] == ["D102"]


def test_an_unreadable_file_does_not_stop_translate(mixed):
    result = run("translate", "-f", str(mixed), "-o", "json")
    assert result.exit_code == 2
    assert len(answer(result)["items"]) == 2
    assert [Path(error["file"]).name for error in answer(result)["errors"]] == ["c.yaml"], "a template is skipped"
    assert run("translate", "-f", str(mixed)).stdout.count("kind: DeviceClass") == 2


def test_claims_are_not_allocated_when_the_input_has_no_node(mixed):
    (mixed / "e.yaml").write_text("apiVersion: [1")
    result = run("simulate", "-f", str(mixed), "--claims", "-o", "json")
    assert result.exit_code == 2
    unreadable, reason = answer(result)["errors"]
    assert (Path(unreadable["file"]).name, reason["message"]) == ("e.yaml", "no Node in the input")


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A file with each malformed manifest."""
    file = tmp_path_factory.mktemp("odd") / "odd.yaml"
    file.write_text("\n---\n".join(json.dumps(obj) for obj in odd_objects()))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (["check", "-f"], {2}),
        (["translate", "-o", "json", "-f"], {2}),
        (["simulate", "-f"], {3}),
        (["simulate", "--claims", "-f"], {3}),
        (["demo", "--once", "-f"], {0}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_malformed_manifest_causes_no_exception(arguments, codes, odd):
    result = run(*arguments, odd)
    assert "bug in drawbridge" not in result.output, result.output[-2000:]
    assert result.exit_code in codes
