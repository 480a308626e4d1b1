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
_WORD: Final = 32  # characters; longer words of a table may be broken
# The text in a cell, so that colour is never the only sign.
LETTERS: Final = {
    "free": "",
    "shared": "%",
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
    """Link to a page."""
    return el("a", text, href=address(*path, **query))


def address(*path: str, **query: str) -> str:
    """Return the address of a page; each part of the path and the query is escaped, so that it cannot lead to another path."""
    escaped_path = "/" + "/".join(quote(part, safe="") for part in path)
    return f"{escaped_path}?{urlencode(query)}" if query else escaped_path


def lines(texts: Iterable[str]) -> Html:
    """Write lines in a fixed-width font."""
    return el("pre", Html("\n".join(map(escaped, texts))))


def area(text: str, **attributes: object) -> Html:
    """Make a field for editing a text. It begins with a line break, because a browser ignores the first one."""
    content = Html("\n" + "\n".join(escaped(line) for line in text.splitlines()))
    return el("textarea", content, **attributes)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], most: int = 0, *where: object) -> Html:
    """Make a table with numbers aligned to the right. On a phone a row becomes a list, so each cell has the name of its column.

    With `most`, the table has at most so many rows, and below it is the number of the other rows, with `where` they are listed.
    """
    all_rows = list(rows)
    numeric_columns = [bool(all_rows) and isinstance(cell, int) for cell in (all_rows or [head])[0]]
    table_rows: list[Html] = []
    for row in all_rows[: most or None]:
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
    whole = el("div", el("table", table_head, el("tbody", *table_rows)), class_="wide", tabindex="0")
    left = len(all_rows) - len(table_rows)
    return concatenated((whole, el("p", f"and {left:,} more", *where, class_="soft"))) if left else whole


def part_as_html(part: Part, most: int = 0, *where: object) -> Html:
    """Write a part of a report."""
    match part:
        case Screen():
            return concatenated((_title(part.title), lines(part.lines)))
        case Rows():
            rows = [[_cell(cell) for cell in row] for row in part.rows]
            return concatenated((_title(part.title), table(part.head, rows, most, *where))) if rows else Html()
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


def cell(state: str, title: str = "", *path: str, used: int = 0) -> Html:
    """Draw a device by its state; if it is shared, with the used percentage. With a path, the device is a link, so that it can have the focus."""
    css_class = f"cell {state} u{used // 10}" if used else f"cell {state}"
    if path:
        return el("a", used or LETTERS[state], class_=css_class, href=address(*path), aria_label=title)
    return el("span", LETTERS[state], class_=css_class, title=title)
