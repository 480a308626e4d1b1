"""Writes values as HTML and SVG. One function escapes every text, so that no name, label or message becomes markup."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from analysis.printable import printable
from analysis.report import Marked, Part, Rows, Screen, Why

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from analysis.report import Cell

_EMPTY: Final = frozenset({"input", "link", "meta", "rect", "br"})
_CHART_WIDTH, _CHART_HEIGHT = 1000, 120
_SQUARE, _GAP = 16, 3
_WORD: Final = 32  # characters; longer words of a table may be broken
# The text in a square, so that colour is never the only sign.
LETTERS: Final = {
    "free": "",
    "shared": "S",
    "held": "H",
    "plugin": "P",
    "blocked": "×",
    "unusable": "!",
    "unknown": "?",
} | {f"k{number}": str(number) for number in range(1, 9)}


def escaped(value: object) -> str:
    """Escape a text from a cluster or a file for HTML or SVG."""
    return escape(printable(str(value)), quote=True)


class Html(str):
    """Markup that this module made; any other text is escaped."""

    __slots__ = ()


def el(name: str, /, *content: object, **attributes: object) -> Html:
    """Make an element; an attribute whose name is a keyword of Python ends with an underscore, such as `class_`."""
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items() if value != ""
    )
    if name in _EMPTY:
        return Html(f"<{name}{attribute_text}>" if name != "rect" else f"<{name}{attribute_text}/>")
    return Html(f"<{name}{attribute_text}>{concatenated(content)}</{name}>")


def concatenated(content: Iterable[object]) -> Html:
    return Html("".join(part if isinstance(part, Html) else escaped(part) for part in content))


def link(text: object, *path: str, **query: str) -> Html:
    """Link to a page; each part of the path and the query is escaped, so that it cannot lead to another path."""
    address = "/" + "/".join(quote(part, safe="") for part in path)
    return el("a", text, href=f"{address}?{urlencode(query)}" if query else address)


def lines(texts: Iterable[str]) -> Html:
    """Write lines in a fixed-width font."""
    return el("pre", Html("\n".join(map(escaped, texts))))


def area(text: str, **attributes: object) -> Html:
    """Make a field for editing a text. It begins with a line break, because a browser ignores the first one."""
    content = Html("\n" + "\n".join(escaped(line) for line in text.splitlines()))
    return el("textarea", content, **attributes)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Make a table with numbers aligned to the right. On a phone a row becomes a list, so each cell has the name of its column."""
    all_rows = list(rows)
    numeric_columns = [bool(all_rows) and isinstance(cell, int) for cell in (all_rows or [head])[0]]
    table_rows: list[Html] = []
    for row in all_rows:
        row_cells: list[Html] = []
        for heading, cell in zip(head, row, strict=True):
            if isinstance(cell, int):
                row_cells.append(el("td", f"{cell:,}", class_="n", data_head=heading))
                continue
            # A short word is not broken.
            is_short_word = (
                isinstance(cell, str) and not isinstance(cell, Html) and len(cell) <= _WORD and " " not in cell
            )
            row_cells.append(el("td", cell, class_="w" if is_short_word else "", data_head=heading))
        table_rows.append(el("tr", *row_cells))
    headings = [
        el("th", heading, scope="col", class_="n" if is_numeric else "") if heading else el("td")
        for heading, is_numeric in zip(head, numeric_columns, strict=True)
    ]
    table_head = el("thead", el("tr", *headings))
    return el("div", el("table", table_head, el("tbody", *table_rows)), class_="wide", tabindex="0")


def part_as_html(part: Part) -> Html:
    """Write a part of a report."""
    match part:
        case Screen():
            return concatenated((_title(part.title), lines(part.lines)))
        case Rows():
            rows = [[_cell(cell) for cell in row] for row in part.rows]
            return concatenated((_title(part.title), table(part.head, rows))) if rows else Html()
        case _:
            return el("p", part) if part else Html()


def _title(title: str) -> Html:
    return el("h2", title) if title else Html()


def _cell(cell: Cell) -> object:
    match cell:
        case Marked():
            return el("b", cell.state, class_=cell.state)
        case Why():
            return concatenated((cell.reason, el("br"), el("small", cell.remedy))) if cell.remedy else cell.reason
        case tuple():
            return concatenated(part for text in cell if text for part in (text, el("br")))
        case _:
            return cell


def text_of_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in counts.items()) or "none"


def bar(counts: Mapping[str, int], label: str = "") -> Html:
    """Draw counts by state as one bar; without a `label`, the counts are the label."""
    return strip([(number, state, "") for state, number in counts.items()], label or text_of_counts(counts))


def strip(parts: Sequence[tuple[float, str, str]], label: str) -> Html:
    """Draw parts of a whole to scale, each by its state and with a title; `label` describes all of them."""
    total = sum(part for part, *_ in parts) or 1
    rectangles: list[Html] = []
    offset = 0.0
    for part, state, title in parts:
        width = 100 * part / total
        title_element = (el("title", title),) if title else ()
        rectangles.append(
            el("rect", *title_element, x=f"{offset:.2f}%", width=f"{width:.2f}%", height="100%", class_=state)
        )
        offset += width
    return el("svg", *rectangles, class_="bar", role="img", aria_label=label)


def chart(points: Sequence[tuple[float, float]], maximum: float, label: str) -> Html:
    """Draw values over time as a stepped line from 0 to `maximum`."""
    first_time, span = points[0][0], points[-1][0] - points[0][0] or 1.0
    path_steps: list[str] = []
    for time, value in points:
        x, y = _CHART_WIDTH * (time - first_time) / span, _CHART_HEIGHT * (1 - value / (maximum or 1))
        path_steps.append(f"{'H' if path_steps else 'M'}{x:.1f}{f'V{y:.1f}' if path_steps else f',{y:.1f}'}")
    box = f"0 -2 {_CHART_WIDTH} {_CHART_HEIGHT + 4}"
    path = el("path", d="".join(path_steps))
    return el("svg", path, class_="chart", role="img", aria_label=label, viewBox=box, preserveAspectRatio="none")


def squares(devices: Sequence[tuple[str, str]]) -> Html:
    """Draw devices, each by its state and with its name as a title."""
    elements: list[Html] = []
    for index, (state, title) in enumerate(devices):
        x = index * (_SQUARE + _GAP)
        letter = el("text", LETTERS[state], x=x + _SQUARE / 2, y=12)
        mark = el("rect", x=x + 0.5, y=0.5, width=_SQUARE - 1, height=_SQUARE - 1, rx=3, class_=state)
        elements.append(el("g", el("title", title), mark, letter))
    width = len(devices) * (_SQUARE + _GAP)
    label = f"{len(devices)} devices"
    return el("svg", *elements, class_="squares", role="img", aria_label=label, width=width, height=_SQUARE)


_COLOURS: Final = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--link:#0a58ca;--panel:#f6f8fa;
--free:#fff;--held:#2f6f4f;--shared:#8fc7a6;--plugin:#7a5195;--blocked:#c9cfd6;--unusable:#e3a08f;--unknown:#f2c94c;--on:#fff;--warn:#9a3412;
--good:#17692f;--soon:#8a5a00;--bad:#a01c1c;--given:#0a58ca;
--k1:#1f6feb;--k2:#8250df;--k3:#116329;--k4:#953800;--k5:#a40e26;--k6:#0e7490;--k7:#6e4c13;--k8:#57606a}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--paper:#0d1117;--line:#30363d;--link:#79b8ff;--panel:#161b22;
--free:#0d1117;--held:#4ca877;--shared:#2b6247;--plugin:#b58ad6;--blocked:#3b424b;--unusable:#8c4a3c;--unknown:#a67c00;--on:#0d1117;--warn:#ffb086;
--good:#4ca877;--soon:#e0a030;--bad:#ff8f8f;--given:#79b8ff;
--k1:#79b8ff;--k2:#d2a8ff;--k3:#7ee787;--k4:#ffa657;--k5:#ff8f8f;--k6:#67d3e8;--k7:#e3c565;--k8:#9aa4af}}
"""
_MARKS: Final = """
.free{fill:var(--free)}.held{fill:var(--held)}.shared{fill:var(--shared)}.plugin{fill:var(--plugin)}.blocked{fill:var(--blocked)}.unusable{fill:var(--unusable)}.unknown{fill:var(--unknown)}.given{fill:var(--given)}
.translated,.served{fill:var(--good);color:var(--good)}.feasible{fill:var(--good)}.infeasible{fill:var(--bad)}.undecided{fill:var(--unknown)}.approximated,.partly,.left,.warning{fill:var(--soon);color:var(--soon)}
.squares{display:inline-block;vertical-align:-3px;overflow:visible}.squares rect{stroke:var(--soft)}.squares text{font:bold 10px system-ui,sans-serif;text-anchor:middle;fill:var(--ink)}
.squares .held+text,.squares .plugin+text,.squares .given+text,.squares [class^=k]+text{fill:var(--on)}
.k1{fill:var(--k1)}.k2{fill:var(--k2)}.k3{fill:var(--k3)}.k4{fill:var(--k4)}.k5{fill:var(--k5)}.k6{fill:var(--k6)}.k7{fill:var(--k7)}.k8{fill:var(--k8)}
"""
_PAGE: Final = """
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
a{color:var(--link)}header,main,footer{max-width:78rem;margin:0 auto;padding:0 1rem}
header{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem;align-items:center;padding-top:.8rem;padding-bottom:.8rem;border-bottom:1px solid var(--line)}
header strong{font-size:1.1rem}nav{display:flex;flex-wrap:wrap;gap:.2rem 1rem;flex:1}nav a{white-space:nowrap;overflow-wrap:normal}nav a[aria-current]{color:var(--ink);font-weight:600;text-decoration:none}
h1{font-size:1.45rem;margin:1.2rem 0 .4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin:1.6rem 0 .4rem;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;margin:1rem 0;padding:0;list-style:none}
.tiles li{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}.tiles b{display:block;font-size:1.5rem;line-height:1.2}
.tiles span,.soft,footer{color:var(--soft)}.warn{border-left:4px solid var(--warn);background:var(--panel);padding:.5rem .8rem;margin:.8rem 0}
.chart{display:block;width:100%;height:7.5rem;border:1px solid var(--line);border-radius:.3rem}.chart path{fill:none;stroke:var(--link);stroke-width:2;vector-effect:non-scaling-stroke}
.wide{overflow-x:auto;padding:2px}table{border-collapse:collapse;max-width:100%;margin:.4rem 0}table:has(svg.bar){width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem 1.4rem .35rem 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere}
th{white-space:nowrap;overflow-wrap:normal;font-weight:600}td.n,th.n{text-align:right;white-space:nowrap}
td{min-width:8rem}td.n,td.w,td:has(>b){min-width:0;white-space:nowrap}td:last-child:not(.n,.w){min-width:14rem}td small{color:var(--soft);font-size:.9rem}.wide>svg:not(.bar,[width]){max-width:48rem}svg.bar{width:100%;min-width:10rem;height:1.1rem;border:1px solid var(--soft);border-radius:3px;display:block}
.unit{display:inline-block;width:16rem;max-width:100%;margin:0 1rem .5rem 0;vertical-align:top}.unit svg.bar rect{stroke:var(--soft)}
.info{fill:var(--soft);color:var(--soft)}b.unknown{color:var(--bad)}.refused,.error{fill:var(--bad);color:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;padding:0;list-style:none;color:var(--soft);font-size:.9rem}.legend li{display:flex;gap:.4rem;align-items:center}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:.8rem;white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,monospace}
input,select,button{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--soft);border-radius:.3rem;padding:.2rem .5rem;max-width:100%}
textarea{width:100%;font:13px/1.5 ui-monospace,monospace;color:inherit;background:var(--paper);border:1px solid var(--soft);border-radius:.3rem;padding:.5rem}
form{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center}footer{border-top:1px solid var(--line);margin-top:2rem;padding-top:.6rem;padding-bottom:2rem;font-size:.9rem}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.3rem}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}main:focus{outline:none}
@media screen and (max-width:40rem){thead{display:none}table,tbody,tr,td{display:block}tr{border-bottom:1px solid var(--line);padding:.4rem 0}
td,td.n{border:0;padding:.1rem 0;text-align:left}td:empty{display:none}td[data-head]::before{content:attr(data-head) ": ";color:var(--soft)}}
@media print{header nav,header form,.skip{display:none}body{font-size:11px}tr{break-inside:avoid}h2{break-after:avoid}.wide{overflow:visible}
td,td:last-child:not(.n,.w){min-width:0;padding-right:.5rem}.wide>svg:not(.bar){display:block;max-width:100%;height:auto;max-height:24cm}}
"""
STYLE: Final = _COLOURS + _MARKS + _PAGE
