"""HTML and Markdown reports are self-contained, and no name of an object becomes markup, a row or a column in them."""

import re
import xml.etree.ElementTree as ET

import pytest

from rendering.html import STYLE, Html
from rendering.html import fleet as draw_fleet
from rendering.report import Drawn, Report, Rows, Screen, Why, as_csv, as_html, as_markdown, as_text, inline
from tests.cli.elements import Elements
from tests.cli.explain.scenes import claim, fleet, full_fleet, held_claim, node, pod
from tests.cli.running import MODES, manifest, run

EXAMPLES = MODES.parent

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
PICTURE_COMMANDS = {"free": ("free",), "simulate": ("simulate",)}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_is_self_contained_and_shows_names_unchanged(command, tmp_path):
    result = run(*COMMANDS[command], "-f", hostile_dump(tmp_path), "-o", "html")
    page = Elements(result.stdout)
    tags = {tag for tag, _ in page.seen}
    assert tags >= {"html", "meta", "title", "style", "header", "main", "h1", "footer"}
    assert not tags & {"script", "img", "iframe", "object", "link", "base", "a", "form"}
    assert not [name for _, attributes in page.seen for name in attributes if name.startswith("on") or name in ("src", "href", "style")]  # fmt: skip
    assert {"http-equiv": "Content-Security-Policy", "content": "default-src 'none'; style-src 'unsafe-inline'"} in [
        attributes for _, attributes in page.seen
    ]
    assert STYLE in result.stdout
    assert not re.search(r"url\(|@import", result.stdout)
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert HOSTILE_NAME.partition("\n")[0] in page.text


@pytest.mark.parametrize("command", COMMANDS)
def test_markdown_keeps_its_rows_and_columns(command, tmp_path):
    result = run(*COMMANDS[command], "-f", hostile_dump(tmp_path), "-o", "markdown")
    text = re.sub(
        r"^(`{3,})\n.*?^\1$", "", result.stdout, flags=re.DOTALL | re.MULTILINE
    )  # text in a code block is no markup
    assert "script" in result.stdout
    assert "<script" not in text
    assert "\x1b" not in result.stdout
    assert column_counts(text)
    assert all(len(set(counts)) == 1 and counts[0] > 1 for counts in column_counts(text))
    lines_outside_tables = [line for line in text.splitlines() if not line.startswith("|")]
    assert not [line for line in lines_outside_tables if "alert" in line or "*z*" in line]
    assert len([line for line in lines_outside_tables if line.startswith("# ")]) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_format_has_the_exit_code_of_text(command, tmp_path):
    arguments = (*COMMANDS[command], "-f", hostile_dump(tmp_path))
    text = run(*arguments)
    for form in ("html", "markdown"):
        result = run(*arguments, "-o", form)
        assert result.exit_code == text.exit_code
        assert result.stdout == run(*arguments, "-o", form).stdout


@pytest.mark.parametrize("command", PICTURE_COMMANDS)
def test_a_picture_is_self_contained_and_exits_like_text(command, tmp_path):
    arguments = (*PICTURE_COMMANDS[command], "-f", hostile_dump(tmp_path))
    result = run(*arguments, "-o", "svg")
    picture = ET.fromstring(result.stdout)
    assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= {
        "svg",
        "style",
        "text",
        "g",
        "title",
        "rect",
    }
    assert not [
        name
        for element in picture.iter()
        for name in element.attrib
        if name.startswith("on") or name in ("href", "src")
    ]
    assert "url(" not in result.stdout
    assert result.exit_code == run(*arguments).exit_code
    assert result.stdout == run(*arguments, "-o", "svg").stdout


def test_a_picture_of_a_fleet_shows_the_holders(tmp_path):
    picture = ET.fromstring(run("free", "-f", hostile_dump(tmp_path), "-o", "svg").stdout)
    titles = [element.text for element in picture.iter(f"{SVG}title")]
    assert "gpu.example.com/n0/gpu-0: held, default/p0, default/" in "\n".join(titles)
    assert "held" in [element.text for element in picture.iter(f"{SVG}text")]


def test_a_simulation_draws_its_allocations(tmp_path):
    arguments = ("simulate", "-f", manifest(tmp_path / "free.json", *fleet(2, 2), claim("c"), pod("new", "c")))
    picture = ET.fromstring(run(*arguments, "-o", "svg").stdout)
    assert [element.text for element in picture.iter(f"{SVG}title")].count("gpu.example.com/n0/gpu-0: default/new") == 1
    assert "| n0 | 1 given, 1 free |" in run(*arguments, "-o", "markdown").stdout
    assert "| default/new | n0 | gpu.example.com/n0/gpu-0 |" in run(*arguments, "-o", "markdown").stdout


def test_a_fleet_of_many_nodes_is_drawn_in_part():
    picture = draw_fleet([("n" * 63, [("free", "<a>"), ("held", "b")])], 4900)
    assert [element.text for element in ET.fromstring(picture).iter(f"{SVG}text")] == [
        "n" * 39 + "…",
        None,
        "H",
        "and 4,900 more nodes",
        None,
        "free",
        "H",
        "held",
    ]


def bars(page):
    """Return the label of each bar of a page, and the widths of the bar's parts."""
    bars_of_page, parts = [], []
    for tag, attributes in Elements(page).seen:
        if tag == "svg" and attributes.get("class") == "bar":
            parts = []
            bars_of_page.append((attributes["aria-label"], parts))
        elif tag == "rect":
            parts.append((attributes["class"], attributes["width"]))
    return bars_of_page


def test_a_quota_and_a_capacity_are_drawn_as_bars(tmp_path):
    quota = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"gpu/devices": "4"}},
    }
    running = pod("q", "a", nodeName="n0")
    dump = manifest(tmp_path / "dump.json", *fleet(), quota, held_claim("a", "q"), running, claim("c"), pod("p", "c"))
    quota_bars = bars(run("explain", "pod", "p", "-f", dump, "-o", "html").stdout)
    assert ("1 of 4 used, 1 requested", [("held", "25.00%"), ("given", "25.00%"), ("free", "50.00%")]) in quota_bars
    arguments = ("explain", "device", "node-b/gpu-1", "-f", EXAMPLES / "why")
    assert bars(run(*arguments, "-o", "html").stdout)[0] == (
        "20Gi of 80Gi used",
        [("held", "25.00%"), ("given", "0.00%"), ("free", "75.00%")],
    )
    assert "| memory | 20Gi of 80Gi used | 60Gi | 80Gi |" in run(*arguments, "-o", "markdown").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_format_is_refused_with_a_list_of_formats(command):
    result = run(*COMMANDS[command], "-o", "pdf")
    assert result.exit_code == 2
    assert "'html'" in result.stderr
    assert "'markdown'" in result.stderr


def test_unreadable_files_are_named_in_the_report(tmp_path):
    (tmp_path / "broken.json").write_text('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}')
    result = run("check", "-f", hostile_dump(tmp_path), "-f", tmp_path / "broken.json", "-o", "html")
    assert result.exit_code == 2
    assert "Not read, so this report may be incomplete" in Elements(result.stdout).text
    assert "broken.json" in Elements(result.stdout).text


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
    assert "&lt;i&gt;" in as_html(report, "")


def test_a_table_without_rows_is_left_out():
    report = Report("r", (Rows(("A",), (), "None of these"), Rows(("N", "B"), [(1000, Why("x", "y"))], "Some")))
    assert as_markdown(report) == "# r\n\n## Some\n\n| N | B |\n| --: | --- |\n| 1,000 | x<br>y |\n"
    assert "None of these" not in as_html(report, "")
    assert '<td class="n" data-head="N">1,000</td><td data-head="B">x<br><small>y</small></td>' in as_html(report, "")


TABLE = Rows(
    ("Node", "", "Number", "Why"),
    [
        ("n1", Drawn(Html("<svg></svg>"), "half"), 1000, Why("full", "free it")),
        ("node-2", Drawn(Html()), 7, ("a", "b")),
    ],
    "Nodes",
)


def test_text_aligns_columns_and_puts_notes_below_rows():
    report = Report("r", ("", TABLE, Drawn(Html("<svg></svg>"), "bar")), "2 nodes")
    assert list(as_text(report)) == [
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
        ("", ("2 nodes",)),
    ]
    assert as_markdown(report).startswith("# r\n\n2 nodes\n\n## Nodes\n\n| Node |   | Number | Why |\n")


def test_a_table_of_pictures_is_not_printed_as_text():
    assert list(as_text(Report("r", (Rows(("Node", ""), [("n1", Drawn(Html(), "half"))]),)))) == [("", ()), ("", ("",))]


def test_text_shows_the_full_report_instead_of_its_parts():
    report = Report("r", (TABLE,), full=["all"])
    assert [lines for _, lines in as_text(report)] == [["all"], ("",)]
    assert as_markdown(report).endswith("## In full\n\n```\nall\n```\n")


def test_a_csv_has_plain_numbers_and_no_formula():
    rows = Rows(("Node", "Number", "Why"), [("=1+1", 1000, Why("full", "free it")), ("n\x1b", 7, ("", "a", "b"))])
    assert as_csv(rows) == "Node,Number,Why\r\n'=1+1,1000,full; free it\r\nn\\x1b,7,a; b\r\n"
    assert as_csv(Rows(("A",), [(1, True, "1", "=x", "=x", 0, False)])) == "A\r\n1,True,1,'=x,'=x,0,False\r\n"
