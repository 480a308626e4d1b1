"""The output on a pseudo-terminal of a given width, and into a pipe."""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from cli.terminal import WIDEST, aligned, colour_of_change, columns_of, cut, marked, wrapped
from cluster import manifests
from tests.cli.explain.scenes import held_claim
from tests.cli.running import manifest, run
from tests.objects import node, obj, resource_slice

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
PODS, WHY, MODES = (str(EXAMPLES / name) for name in ("pods", "why", "modes"))
BAD = "BAD"
COMMANDS = (
    ["translate", "-f", PODS, "-o", "diff"],
    ["translate", "-f", PODS, "-o", "report"],
    ["translate", "-f", PODS, "--check"],
    ["check", "-f", PODS, "--inventory", MODES],
    ["explain", "all"],
    ["survey", "-f", WHY, "-f", PODS, "-o", "wide"],
    ["explain", "R001"],
    ["explain", "pod", "notebook", "-f", WHY],
    ["explain", "pod", "notebok", "-f", WHY],
    ["explain", "device", "node-b/gpu-1", "-f", WHY],
    ["simulate", "-f", MODES, "--claims"],
    ["simulate", "-f", MODES],
    ["dialects"],
    ["quota", "-f", WHY],
    ["doctor", "-f", WHY],
    ["check", "-o", "jsn"],
    ["schema", "chekc"],
    ["chek"],
    ["--help"],
    ["check", "--help"],
)
SCRIPT = """
import json, sys
from cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words, prog_name="drawbridge")
    except SystemExit:
        pass
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def lines_on_terminal(columns, commands=COMMANDS, **variables):
    """Return the lines that these commands print on a terminal of this width."""
    import json

    terminal, program_end = pty.openpty()
    termios.tcsetwinsize(program_end, (24, columns))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    arguments = [sys.executable, "-c", SCRIPT, json.dumps(commands)]
    with subprocess.Popen(
        arguments,
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env={**environment, "TERM": "xterm", **variables},
    ) as process:
        os.close(program_end)
        parts = []
        try:
            while part := os.read(terminal, 1 << 16):
                parts.append(part)
        except OSError:  # the process has closed its end
            os.close(terminal)
        process.wait(timeout=60)
    return b"".join(parts).decode().replace("\r\n", "\n").splitlines()


@pytest.mark.whole
def test_no_breakable_line_is_wider_than_the_terminal():
    columns = 40
    lines = [COLOUR.sub("", line) for line in lines_on_terminal(columns)]
    assert len(lines) > 400
    never_wrapped = re.compile(r"  (-|drawbridge ).*")  # a help wraps neither its options nor its examples
    assert [
        line for line in lines if columns_of(line) > columns and " " in line.strip() and not never_wrapped.match(line)
    ] == []


FLEET = str(EXAMPLES / "fleet")
# For each command, the beginning of its output.
FIRST_LINES = {
    ("survey", "-f", WHY): "4 workloads with devices: 4 own claims.",
    ("survey", "-f", BAD): "1 workload with devices: 1 refused.",
    ("free", "-f", WHY): "2 nodes: 4 devices, 4 in use (1 with room left), 0 free",
    ("free", "-f", BAD): "1 node: 2 devices, 1 in use, 1 free",
    ("quota", "-f", WHY): "no DeviceQuota, so devices are not limited",
    ("quota", "-f", str(EXAMPLES / "policy")): "1 DeviceQuota: 1 of 1 line used up",
    ("doctor", "-f", WHY): "1 finding: 1 info",
    ("doctor", "-f", BAD): "1 finding: 1 warning",
    ("migrate", "plan", str(EXAMPLES / "homelab")): "Move now: gpu.intel.com",
    ("migrate", "status", str(EXAMPLES / "homelab")): "not done: gpu.intel.com",
    (
        "translate",
        "-f",
        PODS,
        "-o",
        "report",
    ): "18 objects, 11 rewritten: 10 translated, 1 approximated, 3 left, 2 refused, 2 without a legacy request",
    ("translate", "-f", BAD, "-o", "report"): "8 objects, 0 rewritten: 1 refused, 7 without a legacy request",
    ("check", "-f", PODS, "--inventory", FLEET): "18 objects checked: 4 errors, 1 warning, 0 info",
    ("check", "-f", BAD): "8 objects checked: 1 error, 0 warnings, 0 info",
    ("test", str(EXAMPLES / "cases")): "4 cases: 4 passed, 0 failed",
    ("dialects",): "455 keys of 19 dialects: 25 approximated, 61 translated, 369 left",
    ("explain", "pod", "notebook", "-f", WHY): "pod team-b/notebook: Pending, scheduler default-scheduler",
    (
        "explain",
        "pod",
        "lost",
        "-n",
        "team",
        "-f",
        BAD,
    ): "pod team/lost: in no cluster yet, scheduler default-scheduler",
    (
        "simulate",
        "-f",
        PODS,
        "--inventory",
        FLEET,
    ): "10 of 17 pods placed (first-fit), 15 devices allocated; hardware in use 39%, 12% of the free hardware is fragmented",
    (
        "simulate",
        "-f",
        BAD,
    ): "0 of 1 pod placed (first-fit), 0 devices allocated; hardware in use 50%, 0% of the free hardware is fragmented",
    ("simulate", "-f", WHY, "--claims"): "0 of 2 nodes can serve this",
    (
        "survey",
        "-f",
        "no-such-file",
    ): "error: no-such-file: cannot be read: No such file or directory (correct the path, or create the file)",
    (
        "doctor",
        "-f",
        "no-such-file",
    ): "error: no-such-file: cannot be read: No such file or directory (correct the path, or create the file)",
}


def test_each_command_begins_with_its_answer_and_fits_120_columns(tmp_path):
    """The bad dump has an object twice, kinds that no command reads, a claim of a deleted pod, and an amount that is no number."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "half"}}}
    lost_pod = obj("Pod", "lost", namespace="team", uid="u", containers=[container])
    others = [obj("PersistentVolume", f"v{number}", capacity={}) for number in range(3)]
    slices = resource_slice("n9", "gpu-0", "gpu-1", pool="n9", nodeName="n9")
    lost_claim = held_claim("c", "gone", on="n9/gpu-1")
    bad = str(manifest(tmp_path / "dump.json", node("n9"), node("n9"), *others, slices, lost_claim, lost_pod))
    commands = [[bad if word == BAD else word for word in command] for command in FIRST_LINES]
    version = ["--version"]
    lines = lines_on_terminal(120, [words for command in commands for words in (command, version)], NO_COLOR="1")
    outputs = "\n".join(lines).split("drawbridge, version ")[:-1]
    first_lines = [output.splitlines()[bool(number) :][:1] for number, output in enumerate(outputs)]
    assert {command: first[0] for command, first in zip(FIRST_LINES, first_lines, strict=True)} == FIRST_LINES
    assert [line for line in lines if columns_of(line) > 120 and " " in line.strip()] == []


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_are_off_with_no_color_and_on_dumb_terminals(variables):
    lines = lines_on_terminal(
        80, [["translate", "-f", PODS, "-o", "diff"], ["survey", "-f", WHY], ["chek"]], **variables
    )
    assert len(lines) > 100
    assert [line for line in lines if "\x1b" in line] == []


def test_errors_warnings_and_changes_have_colours_on_a_terminal():
    lines = lines_on_terminal(80, [["translate", "-f", PODS, "-o", "diff"], ["chek"]])
    text = "\n".join(lines)
    assert "\x1b[31merror\x1b[0m: no such command" in text
    assert "\x1b[33mwarning\x1b[0m:" in text
    assert any(line.startswith("\x1b[32m+") for line in lines)
    assert any(line.startswith("\x1b[31m-") for line in lines)


def test_a_pipe_gets_whole_lines_without_colours():
    arguments = [sys.executable, "-m", "cli.main", "translate", "-f", PODS, "-o", "diff"]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert "\x1b" not in result.stdout + result.stderr
    assert max(map(len, result.stderr.splitlines())) > 200
    assert max(map(len, result.stdout.splitlines())) > 100


def test_a_line_is_wrapped_at_blanks_and_indented():
    assert list(wrapped("  one two three", 12)) == ["  one two", "      three"]
    assert list(wrapped("日本 日本語", 8, 1)) == ["日本", " 日本語"]
    assert list(wrapped("a-word-that-is-longer than", 8, 2)) == ["a-word-that-is-longer", "  than"]
    assert list(wrapped("one two", None)) == ["one two"]
    assert list(wrapped("\x1b[31mred\x1b[0m word", 8)) == ["\x1b[31mred\x1b[0m word"], "colours take no columns"
    assert list(cut("+日本語", 4)) == ["+日", "本語"]


@pytest.mark.parametrize(
    "part", [" ", "a ", "日 ", "\x1b[31m \x1b[0m"], ids=["blanks", "words", "wide words", "colours"]
)
def test_a_line_is_wrapped_in_linear_time(part):
    """In quadratic time, a `kind` of 60,000 blanks would take half a minute, and this test would reach its time limit."""
    assert list(wrapped(part * (200_000 // len(part)), 80))


def test_the_indentation_of_wrapped_lines_is_bounded():
    """Otherwise a name of blanks and words could be printed as a gigabyte of blanks."""
    assert list(wrapped(" " * 1_000 + "one two", 9)) == [" " * 1_000 + "one", "    two"]


def test_a_wide_cell_does_not_widen_other_rows_without_limit():
    """Otherwise a name of 60 KB would widen the line of each other pod by 60 KB."""
    [head], [wide_row], [other_row] = aligned([("NAME", "NODE"), ("a" * 1_000, "n0"), ("b", "n1")])
    assert (head, other_row) == (f"  {'NAME':{WIDEST}}  NODE", f"  {'b':{WIDEST}}  n1")
    assert wide_row == f"  {'a' * 1_000}  n0"


def test_the_severity_is_coloured_wherever_the_line_is_wrapped():
    line = "some/file.yaml:2: warning: an error follows"
    assert list(marked(line, wrapped(line, 20))) == [
        "some/file.yaml:2:",
        "    \x1b[33mwarning\x1b[0m: an",
        "    error follows",
    ]
    assert list(marked("errors are many", ["errors are many"])) == ["errors are many"]
    assert [colour_of_change(line) for line in ("+++ b", "+a", "-a", "@@", " a")] == [
        "bold",
        "green",
        "red",
        "cyan",
        "",
    ]


INVISIBLE_TEXT = "a\u202egpu\u2066\x9b\u200b\U000e0041"


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_invisible_characters_are_printed_as_escapes(form, tmp_path):
    pod = obj("Pod", "p", annotations={INVISIBLE_TEXT: INVISIBLE_TEXT, "emoji": "👩‍🚀"})
    result = run("translate", "-f", manifest(tmp_path / "pod.yaml", pod), "-o", form)
    assert result.exit_code == 0
    assert not set(result.stdout) & (set(INVISIBLE_TEXT) - set("agpu"))
    printed = [document.object for document in manifests.parse(result.stdout)]
    assert (printed if form == "yaml" else printed[0]["items"]) == [pod]


def test_invisible_characters_are_escapes_in_sarif(tmp_path):
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": INVISIBLE_TEXT},
        "spec": {},
    }
    result = run("check", "-f", manifest(tmp_path / "claim.yaml", claim), "-o", "sarif")
    assert "\\u202egpu" in result.stdout
    assert not set(result.stdout) & (set(INVISIBLE_TEXT) - set("agpu"))
