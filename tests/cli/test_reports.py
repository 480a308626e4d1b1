"""No name of an object becomes markup, a row or a column of a Markdown report."""

import re
from html import unescape

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from analysis.printable import code_span, printable
from analysis.report import CodeSpan, Report, Rows, Screen, Why
from cli.reports import as_markdown, as_text, inline
from tests.cli.explain.scenes import full_fleet, held_claim, node, pod
from tests.cli.running import manifest, run

HOSTILE_NAME = "a|b`<script>alert(1)</script>`\n| x | y |\n# *z* [l](http://x) \\| \x1b[31m\u202e"
LONG_NAME = "n" * 63


def column_counts(text):
    """Return, for each table of a Markdown text, the number of columns of each row."""
    counts, table = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1)
        elif table:
            counts.append(table)
            table = []
    return counts


def hostile_dump(tmp_path):
    """Write a fleet with pods, claims and a node that have hostile or long names."""
    lost_claim = held_claim(HOSTILE_NAME, "away", on="n1/gpu-1")  # doctor reports this claim
    lost_claim["metadata"] |= {
        "finalizers": ["resource.kubernetes.io/delete-protection", "x/y"],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "away", "uid": "pod-away", "controller": True}],
    }
    fleet = full_fleet("c3")
    claim_in_use = next(obj for obj in fleet if obj["metadata"]["name"] == "c0")
    claim_in_use["status"]["reservedFor"].append({"resource": "pods", "name": HOSTILE_NAME, "uid": "pod-odd"})
    return manifest(
        tmp_path / "odd.json",
        *fleet,
        pod(LONG_NAME, "c9", HOSTILE_NAME),
        pod(HOSTILE_NAME, HOSTILE_NAME),
        lost_claim,
        node(HOSTILE_NAME),
    )


COMMANDS = {
    "check": ("check",),
    "doctor": ("doctor",),
    "survey": ("survey",),
    "explain a pod": ("explain", "pod", LONG_NAME),
    "explain a claim": ("explain", "claim", "c0"),
    "explain a device": ("explain", "device", "n1/gpu-1"),
    "simulate": ("simulate",),
    "free": ("free",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_markdown_keeps_its_rows_and_columns(command, tmp_path):
    arguments = (*COMMANDS[command], "-f", hostile_dump(tmp_path))
    result = run(*arguments, "-o", "markdown")
    assert result.exit_code == run(*arguments).exit_code
    text = re.sub(
        r"^(`{3,})\n.*?^\1$", "", result.stdout, flags=re.DOTALL | re.MULTILINE
    )  # text in a code block is no markup
    assert "script" in result.stdout
    assert "<script" not in text
    assert "\x1b" not in result.stdout
    assert column_counts(text) or command.startswith("explain")  # explain prints lines
    assert all(len(set(counts)) == 1 and counts[0] > 1 for counts in column_counts(text))
    lines_outside_tables = [line for line in text.splitlines() if not line.startswith("|")]
    unescaped = [re.sub(r"\\.", "", line) for line in lines_outside_tables if "alert" in line]
    assert not [line for line in unescaped if re.search(r"[|`*\[\]<>]", line)]
    assert len([line for line in lines_outside_tables if line.startswith("# ")]) == 1


@pytest.mark.parametrize(
    ("text", "escaped_text"),
    [
        ("a|b", r"a\|b"),
        (r"a\|b", r"a\\\|b"),
        ("`x` *y* ~z~ [t](u)", r"\`x\` \*y\* \~z\~ \[t\](u)"),
        ("_it_ is_not __this__", r"\_it\_ is_not \_\_this\_\_"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("a\nb\r\nc", "a b c"),
        ("# a", r"\# a"),
        ("- a", r"\- a"),
        ("1. a", r"1\. a"),
        ("\x1b[0m", r"\\x1b\[0m"),
    ],
)
def test_text_from_objects_is_not_markup(text, escaped_text):
    assert inline(text) == escaped_text


def test_lines_of_text_stay_inside_their_block():
    report = Report("r", (Screen(("a", "````", "```` b", "c\n`````\x1b", "<i>")),))
    assert as_markdown(report) == "# r\n\n``````\na\n````\n```` b\nc\\x0a`````\\x1b\n<i>\n``````\n"


# Characters that end a code span, a cell or a row, or that a renderer strips.
NAMES = st.text(st.sampled_from("`|\\ a<&*\n\x1b") | st.characters(), min_size=1)


def code_of(tokens):
    """Return the code spans of parsed Markdown, and all text outside of them."""
    pieces = [child for token in tokens if token.type == "inline" for child in token.children]
    spans = [piece.content for piece in pieces if piece.type == "code_inline"]
    return spans, "".join(piece.content for piece in pieces if piece.type == "text")


@given(NAMES)
def test_a_code_span_contains_the_whole_name(name):
    spans, text = code_of(MarkdownIt().parse(f"see {code_span(name)}."))
    assert (spans, text) == ([printable(name)], "see .")


@given(NAMES.filter(str.strip))
@example("a\n|")
def test_a_name_in_a_table_stays_in_its_cell_and_is_code(name):
    text = as_markdown(Report("r", (Rows(("A", "B"), [(CodeSpan(name), CodeSpan("b"))]),)))
    assert column_counts(text) == [[2, 2, 2]]
    cells = re.findall("<td>(.*?)</td>", MarkdownIt().enable("table").render(text), re.DOTALL)
    assert [re.fullmatch("<code>(.*)</code>", cell, re.DOTALL) is not None for cell in cells] == [True, True]
    assert unescape(cells[0][6:-7]).strip() == printable(name).strip()


def test_a_table_without_rows_is_left_out():
    report = Report("r", (Rows(("A",), (), "None of these"), Rows(("N", "B"), [(1000, Why("x", "y"))], "Some")))
    assert as_markdown(report) == "# r\n\n## Some\n\n| N | B |\n| --: | --- |\n| 1,000 | x<br>y |\n"


TABLE = Rows(
    ("Node", "Number", "Why"),
    [
        ("n1", 1000, Why("full", "free it")),
        ("node-2", 7, ("a", "b")),
    ],
    "Nodes",
)


def test_text_aligns_columns_and_puts_notes_below_rows():
    report = Report("r", ("", TABLE), "2 nodes")
    assert list(as_text(report)) == [
        ("", ["2 nodes"]),
        ("", ("",)),
        (
            "Nodes",
            [
                "  NODE    NUMBER  WHY",
                "  n1       1,000  full",
                "      free it",
                "  node-2       7  a",
                "      b",
            ],
        ),
    ]
    assert as_markdown(report).startswith("# r\n\n2 nodes\n\n## Nodes\n\n| Node | Number | Why |\n")
