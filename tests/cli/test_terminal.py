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
from tests.cli.running import manifest, run
from tests.objects import obj

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
PODS, WHY, MODES = (str(EXAMPLES / name) for name in ("pods", "why", "modes"))
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
    head, wide_row, other_row = aligned([("NAME", "NODE"), ("a" * 1_000, "n0"), ("b", "n1")])
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
