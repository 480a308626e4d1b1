"""Writes the report of a command for a terminal, or as Markdown. Equal reports give equal texts."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from analysis.printable import code_span, fence_around, printable
from analysis.report import Cell, CodeSpan, Marked, Own, Part, Report, Rows, Screen, Why
from cli.terminal import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Markup of Markdown inside a line, and at its beginning.
_MARKUP: Final = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_OPENING: Final = re.compile(r"^( *)(?:([#+=-])|(\d+)([.)]))")
_BELOW: Final = " " * 6


def as_markdown(report: Report) -> str:
    """Write Markdown for a pull request or a ticket; texts from input are escaped."""
    summary = "  \n".join(map(inline, report.summary.splitlines()))
    parts = [f"# {inline(report.title)}", *filter(None, [summary, *map(_part_as_markdown, report.parts)])]
    return "\n\n".join(parts) + "\n"


def _part_as_markdown(part: Part) -> str:
    match part:
        case str():
            return inline(part)
        case Own():
            return part.text
        case Screen():
            shown = [printable(line) for line in part.lines]
            fence = fence_around("\n".join(shown), 3)
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
            # In a table, renderers disagree about `\\|` inside a code span. An element of HTML has escapes.
            return f"<code>{inline(printable(cell.name))}</code>" if "|" in cell.name else code_span(cell.name)
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


def as_text(report: Report, columns: int | None = None) -> Iterator[tuple[str, Sequence[str]]]:
    """Write the summary and the parts for a terminal of so many columns, each as its title and its lines."""
    yield "", report.summary.splitlines()
    for part in report.parts:
        match part:
            case Rows():
                yield part.title, part.lines or (_table(part, columns) if part.rows else ())
            case Screen():
                yield part.title, part.lines
            case _:
                yield "", (_text_of(part),)


def _table(part: Rows, columns: int | None) -> Sequence[str]:
    """Write a table without its empty columns. The second and further texts of a cell are below the row."""
    whole = list(zip(*part.rows, strict=True))
    shown_columns = [index for index, column in enumerate(whole) if any(map(_first_text, column))]
    head, *rows = aligned(
        [
            [part.head[index].upper() for index in shown_columns],
            *([_first_text(row[index]) for index in shown_columns] for row in part.rows),
        ],
        {position for position, index in enumerate(shown_columns) if isinstance(whole[index][0], int)},
        columns,
    )
    lines_below = [[f"{_BELOW}{text}" for cell in row for text in _texts_of(cell)[1:] if text] for row in part.rows]
    lines = [line for row, below in zip(rows, lines_below, strict=True) for line in (*row, *below)]
    return [*head, *lines] if any(map(str.strip, head)) else lines


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


def _text_of(cell: str | Marked | CodeSpan | Own) -> str:
    match cell:
        case str():
            return cell
        case Marked():
            return cell.state
        case CodeSpan():
            return cell.name
        case Own():
            return cell.text
