"""The reports of commands (`-o html`, `-o markdown`): a value, written as one self-contained HTML file or as Markdown. Pure.

The page has no scripts and loads no resources; a Content-Security-Policy forbids both. Equal reports give equal texts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

import msgspec

from dra.quantity import Quantity
from rendering.html import STYLE, Html, bar, el, lines, table, together
from rendering.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
# Markup of Markdown inside a line, at its beginning, and code fences.
_MARKUP: Final = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_OPENING: Final = re.compile(r"^( *)(?:([#+=-])|(\d+)([.)]))")
_FENCE: Final = re.compile("`{3,}")


class Drawn(msgspec.Struct, frozen=True):
    """A picture or coloured text, and the same in words."""

    drawing: Html
    words: str = ""


class Why(msgspec.Struct, frozen=True):
    """A reason, and below it the remedy."""

    reason: str
    remedy: str


# The texts of a tuple are below one another.
Cell = str | int | Drawn | Why | tuple[str, ...]


class Rows(msgspec.Struct, frozen=True):
    """A table; it is left out if it has no rows."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""


class Screen(msgspec.Struct, frozen=True):
    """Lines of terminal output, in a fixed-width font."""

    lines: Sequence[str]
    title: str = ""


# A str is a paragraph.
Part = str | Rows | Screen | Drawn


class Report(msgspec.Struct, frozen=True):
    """The report of a command."""

    title: str
    parts: Sequence[Part]


def marked(state: str) -> Drawn:
    """Colour an outcome or a severity."""
    return Drawn(el("b", state, class_=state), state)


def amount_bar(hard: str, used: str, requested: str = "0") -> Drawn:
    """Draw the used and the additionally requested part of an amount as a bar."""
    whole, taken, more = (Quantity.parse(one).nano for one in (hard, used, requested))
    words = f"{used} of {hard} used{f', {requested} asked' if more else ''}"
    return Drawn(bar({"held": taken, "given": more, "free": max(whole - taken - more, 0)}, words), words)


def striped(counts: Mapping[str, int]) -> Drawn:
    """Draw counts as one bar."""
    return Drawn(bar(counts))


def as_html(report: Report, source: str) -> str:
    """Write one self-contained HTML file; `source` is its footer."""
    body = el(
        "body",
        el("header", el("strong", "drawbridge")),
        el("main", el("h1", report.title), *map(part_as_html, report.parts)),
        el("footer", source),
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", f"{report.title} · drawbridge"),
        el("style", Html(STYLE)),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def part_as_html(part: Part) -> Html:
    match part:
        case str():
            return el("p", part) if part else Html()
        case Drawn():
            return el("div", part.drawing, class_="wide", tabindex="0")
        case Screen():
            return together((_title(part.title), lines(part.lines)))
        case Rows():
            body = [[_cell(one) for one in row] for row in part.rows]
            return together((_title(part.title), table(part.head, body))) if body else Html()


def _title(title: str) -> Html:
    return el("h2", title) if title else Html()


def _cell(cell: Cell) -> object:
    match cell:
        case Drawn():
            return cell.drawing
        case Why():
            return together((cell.reason, el("br"), el("small", cell.remedy))) if cell.remedy else cell.reason
        case tuple():
            return together(part for one in cell if one for part in (one, el("br")))
        case _:
            return cell


def as_markdown(report: Report) -> str:
    """Write Markdown for a pull request or a ticket; texts from input are escaped."""
    parts = [f"# {inline(report.title)}", *filter(None, map(_markdown, report.parts))]
    return "\n\n".join(parts) + "\n"


def _markdown(part: Part) -> str:
    match part:
        case str():
            return inline(part)
        case Drawn():
            return inline(part.words)
        case Screen():
            shown = [printable(line) for line in part.lines]
            longest = max((len(found) for line in shown for found in _FENCE.findall(line)), default=2)
            fence = "`" * (longest + 1)
            body = "\n".join([fence, *shown, fence])
        case Rows() if part.rows:
            counts = [isinstance(one, int) for one in part.rows[0]]
            head = [inline(one) or " " for one in part.head]
            rule = ["--:" if is_count else "---" for is_count in counts]
            cells = [[_markdown_cell(one) for one in row] for row in part.rows]
            body = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *cells])
        case _:
            return ""
    return f"## {inline(part.title)}\n\n{body}" if part.title else body


def _markdown_cell(cell: Cell) -> str:
    match cell:
        case int():
            return f"{cell:,}"
        case Drawn():
            return inline(cell.words)
        case Why():
            return _markdown_cell((cell.reason, cell.remedy))
        case tuple():
            return "<br>".join(inline(one) for one in cell if one)
        case _:
            return inline(cell)


def inline(text: str) -> str:
    """Escape a text for one line of Markdown."""
    one_line = printable(text.replace("\r\n", " ").replace("\n", " ").strip())
    harmless = _MARKUP.sub(r"\\\g<0>", escape(one_line, quote=False))
    return _OPENING.sub(lambda found: f"{found[1]}{found[3] or ''}\\{found[2] or found[4]}", harmless)
