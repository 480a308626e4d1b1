"""The report of a command, as a value; and its text for a terminal, as one self-contained HTML file, as Markdown, or as CSV.

The page has no scripts and loads no resources; a Content-Security-Policy forbids both. Equal reports give equal texts.
A spreadsheet takes a CSV cell that begins with =, +, - or @ for a formula, and runs it. An apostrophe before such a cell prevents this.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Final

import msgspec

from dra.quantity import Quantity
from rendering.html import STYLE, Html, bar, concatenated, el, lines, table
from rendering.terminal import aligned, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
# Markup of Markdown inside a line, at its beginning, and code fences.
_MARKUP: Final = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_OPENING: Final = re.compile(r"^( *)(?:([#+=-])|(\d+)([.)]))")
_FENCE: Final = re.compile("`{3,}")
_REPEATED: Final = 1024  # cells that are cached
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_BELOW: Final = " " * 6


class Drawn(msgspec.Struct, frozen=True):
    """A picture, and the words that a terminal shows instead."""

    drawing: Html
    words: str = ""


class Marked(msgspec.Struct, frozen=True):
    """An outcome or a severity, in its colour."""

    state: str


class CodeSpan(msgspec.Struct, frozen=True):
    """A name to copy, in a fixed-width font."""

    name: str


class Own(msgspec.Struct, frozen=True):
    """A text of the program itself, in which Markdown is not escaped."""

    text: str


class Why(msgspec.Struct, frozen=True):
    """A reason, and below it the remedy."""

    reason: str
    remedy: str


# A tuple has one text per line. A terminal prints its first text in the row, and the others below the row.
Cell = str | int | Drawn | Marked | CodeSpan | Own | Why | tuple[str | Own, ...]


class Rows(msgspec.Struct, frozen=True):
    """A table; it is left out if it has no rows. A terminal shows `lines` instead, if there are any."""

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    lines: Sequence[str] = ()


class Screen(msgspec.Struct, frozen=True):
    """Lines of terminal output, in a fixed-width font."""

    lines: Sequence[str]
    title: str = ""


# A str or a text of our own is a paragraph.
Part = str | Own | Rows | Screen | Drawn


class Report(msgspec.Struct, frozen=True):
    """The report of a command.

    A page begins with the summary; on a terminal the summary is last. If `full` has lines, a terminal shows them instead of the parts, and
    a page shows them after the parts.
    """

    title: str
    parts: Sequence[Part]
    summary: str = ""
    full: Sequence[str] = ()


def amount_bar(hard: str, used: str, requested: str = "0") -> Drawn:
    """Draw the used and the additionally requested part of an amount as a bar."""
    hard_amount, used_amount, requested_amount = (Quantity.parse(amount).nano for amount in (hard, used, requested))
    words = f"{used} of {hard} used{f', {requested} requested' if requested_amount else ''}"
    return Drawn(
        bar(
            {
                "held": used_amount,
                "given": requested_amount,
                "free": max(hard_amount - used_amount - requested_amount, 0),
            },
            words,
        ),
        words,
    )


def striped(counts: Mapping[str, int]) -> Drawn:
    """Draw counts as one bar."""
    return Drawn(bar(counts))


def as_html(report: Report, source: str) -> str:
    """Write one self-contained HTML file; `source` is its footer."""
    body = el(
        "body",
        el("header", el("strong", "drawbridge")),
        el("main", el("h1", report.title), *map(part_as_html, _page_parts(report))),
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


def _page_parts(report: Report) -> Sequence[Part]:
    full = (Screen(report.full, "In full"),) if report.full else ()
    return (report.summary, *report.parts, *full)


def part_as_html(part: Part) -> Html:
    match part:
        case str():
            return el("p", part) if part else Html()
        case Own():
            return el("p", part.text)
        case Drawn():
            return el("div", part.drawing, class_="wide", tabindex="0")
        case Screen():
            return concatenated((_title(part.title), lines(part.lines)))
        case Rows():
            body = [[_html_cell(cell) for cell in row] for row in part.rows]
            return concatenated((_title(part.title), table(part.head, body))) if body else Html()


def _title(title: str) -> Html:
    return el("h2", title) if title else Html()


def _html_cell(cell: Cell) -> object:
    match cell:
        case Drawn():
            return cell.drawing
        case Marked():
            return el("b", cell.state, class_=cell.state)
        case CodeSpan():
            return el("code", cell.name)
        case Own():
            return cell.text
        case Why():
            return concatenated((cell.reason, el("br"), el("small", cell.remedy))) if cell.remedy else cell.reason
        case tuple():
            return concatenated(part for text in filter(None, map(_text_of, cell)) for part in (text, el("br")))
        case _:
            return cell


def as_markdown(report: Report) -> str:
    """Write Markdown for a pull request or a ticket; texts from input are escaped."""
    parts = [f"# {inline(report.title)}", *filter(None, map(_part_as_markdown, _page_parts(report)))]
    return "\n\n".join(parts) + "\n"


def _part_as_markdown(part: Part) -> str:
    match part:
        case str():
            return inline(part)
        case Own():
            return part.text
        case Drawn():
            return inline(part.words)
        case Screen():
            shown = [printable(line) for line in part.lines]
            longest = max((len(ticks) for line in shown for ticks in _FENCE.findall(line)), default=2)
            fence = "`" * (longest + 1)
            body = "\n".join([fence, *shown, fence])
        case Rows() if part.rows:
            counts = [isinstance(cell, int) for cell in part.rows[0]]
            head = [inline(heading) or " " for heading in part.head]
            rule = ["--:" if is_count else "---" for is_count in counts]
            cells = [[_markdown_cell(cell) for cell in row] for row in part.rows]
            body = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *cells])
        case _:
            return ""
    return f"## {inline(part.title)}\n\n{body}" if part.title else body


def _markdown_cell(cell: Cell) -> str:
    match cell:
        case int():
            return f"{cell:,}"
        case CodeSpan():
            return f"`{printable(cell.name)}`"
        case Own():
            return printable(cell.text).replace("|", "\\|")
        case Why():
            return _markdown_cell((cell.reason, cell.remedy))
        case tuple():
            return "<br>".join(_markdown_cell(text) for text in cell if text)
        case _:
            return inline(_text_of(cell))


def inline(text: str) -> str:
    """Escape a text for one line of Markdown."""
    one_line = printable(text.replace("\r\n", " ").replace("\n", " ").strip())
    escaped = _MARKUP.sub(r"\\\g<0>", escape(one_line, quote=False))
    return _OPENING.sub(lambda match: f"{match[1]}{match[3] or ''}\\{match[2] or match[4]}", escaped)


def as_text(report: Report) -> Iterator[tuple[str, Sequence[str]]]:
    """Write the parts for a terminal, each as its title and its lines."""
    for part in (Screen(report.full),) if report.full else report.parts:
        match part:
            case Rows():
                yield part.title, part.lines or (_aligned(part) if part.rows else ())
            case Screen():
                yield part.title, part.lines
            case Drawn():
                continue
            case _:
                yield "", (_text_of(part),)
    yield "", (report.summary,)


def _aligned(part: Rows) -> Sequence[str]:
    """Write a table without its pictures. The second and further texts of a cell are below the row. Omit a table that has only names and pictures."""
    columns = list(zip(*part.rows, strict=True))
    shown_columns = [
        index
        for index, column in enumerate(columns)
        if not isinstance(column[0], Drawn) and any(map(_first_text, column))
    ]
    if len(shown_columns) < min(len(columns), 2):
        return ()
    numbers = {index for index in shown_columns if isinstance(columns[index][0], int)}
    lines = aligned(
        [
            [part.head[index].upper() for index in shown_columns],
            *([_first_text(row[index]) for index in shown_columns] for row in part.rows),
        ],
        {position for position, index in enumerate(shown_columns) if index in numbers},
    )
    head, *rest = lines
    lines_below = [[f"{_BELOW}{text}" for cell in row for text in _texts_of(cell)[1:] if text] for row in part.rows]
    rows = [line for row, lines_of_row in zip(rest, lines_below, strict=True) for line in (row, *lines_of_row)]
    return [head, *rows] if head.strip() else rows


def _first_text(cell: Cell) -> str:
    return printable(next(iter(_texts_of(cell)), ""))


def _texts_of(cell: Cell) -> tuple[str, ...]:
    """Return the texts of a cell, one per line."""
    match cell:
        case tuple():
            return tuple(map(_text_of, cell))
        case Why():
            return (cell.reason, cell.remedy)
        case int():
            return (f"{cell:,}",)
        case _:
            return (_text_of(cell),)


def _text_of(cell: str | Drawn | Marked | CodeSpan | Own) -> str:
    match cell:
        case str():
            return cell
        case Drawn():
            return cell.words
        case Marked():
            return cell.state
        case CodeSpan():
            return cell.name
        case Own():
            return cell.text


def as_csv(table: Rows) -> str:
    """Write a table for a spreadsheet, with its head."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(table.head)
    harmless = lru_cache(_REPEATED, typed=True)(_harmless)  # a table repeats most of its cells
    writer.writerows(map(harmless, row) for row in table.rows)
    return out.getvalue()


def _harmless(cell: Cell) -> str:
    if cell == "" or isinstance(cell, int):
        return str(cell)
    text = printable(cell if isinstance(cell, str) else "; ".join(filter(None, _texts_of(cell))))
    return f"'{text}" if text.startswith(_FORMULA) else text
