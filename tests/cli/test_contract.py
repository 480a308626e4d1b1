"""The contract of exits that all commands share: 0, 1, 2, 3, and one JSON document on stdout on each of them."""

import errno
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import contract as inputs
from cli.contract import Broken, CommandFailed, Exit
from cli.main import main
from tests.cluster.hostile import odd_objects

GOOD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu}\nspec: {}\n"


def run(*arguments, text=None):
    return CliRunner().invoke(main, list(arguments), input=text)


def answer(result):
    """The JSON on stdout, which must be one document and nothing else."""
    return json.loads(result.stdout)


def test_no_input_is_a_broken_usage():
    result = run("check", "-o", "json")
    assert result.exit_code == 2
    assert answer(result)["findings"] == []
    assert "nothing to check" in answer(result)["errors"][0]["message"]
    assert "nothing to check" in result.stderr


@pytest.mark.parametrize("options", [["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "json"]])
def test_a_wrong_option_is_answered_in_json_however_json_was_asked_for(options):
    result = run("check", *options, "--bogus")
    assert result.exit_code == 2
    assert "--bogus" in answer(result)["errors"][0]["message"]


def test_without_json_nothing_but_stderr_is_written():
    result = run("check", "--bogus")
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_wrong_choice_of_output_is_a_broken_usage():
    result = run("check", "-f", "-", "-o", "jsno", text=GOOD)
    assert result.exit_code == 2
    assert "did you mean json?" in result.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["chek"], "did you mean check"),
        (["check", "--inventroy"], "--inventory"),
        (["--verison"], "--version"),
        (["xyz"], "xyz"),
    ],
)
def test_a_misspelt_word_is_one_line_that_names_the_nearest(words, meant):
    result = run(*words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert meant in result.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["explain", "notebook", "-f", "-"], "such as pod/notebook"),
        (["test", "-"], "-:1:1: unknown field 'apiVersion'"),
        (["free", "--kubeconfig", "/nowhere"], "or read files with -f"),
    ],
)
def test_a_common_mistake_is_answered_with_a_remedy(words, remedy):
    assert remedy in run(*words, text=GOOD).stderr


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_a_value_that_cannot_be_meant_is_refused_in_one_plain_line(words, message):
    result = run(*words, text=GOOD)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    "broken",
    ["kind: Pod\nmetadata: {name: a\n", '{"kind": "Pod", "metadata": {"name": "a"', "spec: [\nkind: Pod\n"],
)
def test_a_broken_manifest_whose_apiversion_is_forgotten_too_is_not_skipped(broken, tmp_path):
    (tmp_path / "pod.yaml").write_text(broken)
    result = run("check", str(tmp_path))
    assert result.exit_code == 2
    assert "pod.yaml:" in result.stderr
    assert "skipped" not in result.stdout


def test_where_no_files_are_read_none_are_offered():
    assert "-f" not in run("uninstall", "--kubeconfig", "/nowhere").stderr


def test_without_a_command_the_help_is_the_answer():
    assert run().exit_code == 0
    assert run().stdout == run("--help").stdout


def test_an_answer_that_is_not_whole_ends_by_saying_so(tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text("apiVersion: [1")
    result = run("check", "-f", str(tmp_path))
    assert result.exit_code == 2
    assert result.stdout == "1 object checked: 0 errors, 0 warnings, 0 info\n"
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
    result = run("check", "-f", "-", "-f", "-", text=GOOD)
    assert result.exit_code == 2
    assert "more than once" in result.stderr
    assert run("check", "-f", "-", "--inventory", "-", text=GOOD).exit_code == 2


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


def command(failure):
    @inputs.command("try", empty={"answer": None})
    @inputs.output("text", "json", default="text")
    def made(output):
        if isinstance(failure, BaseException):
            raise failure
        return failure

    return made


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
def test_every_end_has_its_exit(failure, code):
    result = CliRunner().invoke(command(failure), ["-o", "json"])
    assert result.exit_code == code
    if isinstance(failure, Exception):
        document = json.loads(result.stdout)
        assert document["answer"] is None
        assert document["errors"]
        assert result.stderr


def test_a_defect_is_called_one_and_shows_its_trace():
    result = CliRunner().invoke(command(KeyError("oops")), [])
    assert "bug in drawbridge" in result.stderr
    assert "Traceback" in result.stderr


def test_expected_errors_of_several_tasks_are_reported_once_and_not_as_a_bug():
    """Two listeners of one process, and neither may take the address of another process."""
    used = "Address already in use (127.0.0.1:1)"
    both = [ExceptionGroup("door", [OSError(errno.EADDRINUSE, used)]) for _ in range(2)]
    result = CliRunner().invoke(
        command(ExceptionGroup("tasks", [*both, CommandFailed("no kubeconfig", "name one")])), []
    )
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"error: environment: {used} (stop the process that uses this address, or choose another one)",
        "error: no kubeconfig (name one)",
    ]
    mixed = CliRunner().invoke(command(ExceptionGroup("tasks", [KeyError("oops"), Broken("no")])), [])
    assert mixed.exit_code == 3
    assert "bug in drawbridge: KeyError" in mixed.stderr
    assert "error: no" in mixed.stderr


def test_a_reader_that_leaves_early_is_not_a_defect():
    """`drawbridge check | head -1` ends quietly."""
    text = "---\n".join(GOOD.replace("spec: {}", "spec: {bogus: 1}") for _ in range(3000))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -c 'from cli.main import main; main()' check -f - | head -1"],
        input=text,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("DeviceClass/gpu")


def test_the_command_starts_without_the_heavy_libraries():
    code = "import sys; from cli.commands.check import command; from cli.main import main; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True
    )
    assert not {"aiohttp", "yaml", "kubernetes", "asyncio", "ssl", "cryptography"} & set(done.stdout.split())


HEAD = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"


def commands_with_a_configuration(tmp_path):
    """Every command that takes --config, as far as it reads the file."""
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
def test_every_command_has_the_same_verdict_on_a_configuration_file(tmp_path, content, places):
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


def test_a_configuration_among_manifests_has_the_verdict_of_one_by_option(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "mode: warn\nmode: enforce\nhami: {depth: 1}\n")
    by_option = run("translate", "-f", "-", "--config", str(file), text=GOOD)
    among_files = run("translate", "-f", "-", "-f", str(file), text=GOOD)
    assert by_option.stderr == among_files.stderr
    assert by_option.stderr.count("\n") == 2


def test_reading_a_configuration_needs_no_web_server(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(HEAD)
    script = "import sys; from cli.main import main; main(standalone_mode=False); print(*sys.modules)"
    arguments = ["dialects", "-o", "json", "--config", str(file)]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "kubernetes", "cryptography", "prometheus_client"} & set(done.stdout.split())


@pytest.fixture
def mixed(tmp_path):
    """A folder with a chart's template, a binary that calls itself YAML, and two good manifests."""
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text("{{- if .Values.gpu }}\nkind: Pod\n{{- end }}\n")
    (tmp_path / "c.yaml").write_bytes(b"\x89PNG\xff\xfe\x00")
    (tmp_path / "d.yaml").write_text(GOOD.replace("name: gpu", "name: Bad_Name"))
    return tmp_path


def test_one_file_that_cannot_be_read_does_not_stop_the_check_of_the_rest(mixed):
    (mixed / "e.yaml").write_text("apiVersion: [1")
    result = run("check", "-f", str(mixed))
    assert result.exit_code == 2
    assert "2 objects checked: 1 error" in result.stdout
    assert f"error: {mixed}/e.yaml:" in result.stderr
    result = run("check", "-f", str(mixed), "-o", "json")
    assert result.exit_code == 2
    assert [Path(error["file"]).name for error in answer(result)["errors"]] == ["e.yaml"]
    passed = {(Path(skip["file"]).name, skip["reason"]) for skip in answer(result)["passedBy"]}
    assert passed == {("b.yaml", "template"), ("c.yaml", "other")}
    assert [finding["code"] for finding in answer(result)["findings"]] == ["D102"]


def test_one_file_that_cannot_be_read_does_not_stop_the_translation_of_the_rest(mixed):
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
    """A file with every odd manifest."""
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
def test_no_odd_manifest_is_a_bug_of_ours(arguments, codes, odd):
    result = run(*arguments, odd)
    assert "bug in drawbridge" not in result.output, result.output[-2000:]
    assert result.exit_code in codes
