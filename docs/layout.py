"""Lays out pages: `python -m docs.layout PAGE...` wraps lines at 120 characters, and turns tables with longer rows into lists.

Blocks of code stay unchanged. Code spans and links are never split over two lines.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

WIDTH = 120
ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(?=\S)")
WORD = re.compile(r"(?:`+[^`]*`+|\[[^\]]*\]\([^)]*\)|\S)+")
MARKER = re.compile(r"[-+*>#=|]+|\d+[.)]")  # words that would begin a list or a heading if a line began with them


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(lay_out(page.read_text(encoding="utf-8")), encoding="utf-8")


def lay_out(text: str, write_row: Callable[[list[str], list[str]], Iterable[str]] | None = None) -> str:
    """Wrap long lines, and turn tables with a long row into lists. If `write_row` is given, it writes a row, and all tables become lists."""
    lines: list[str] = []
    for kind, block in groupby(blocks(text), key=lambda kind_and_line: kind_and_line[0]):
        block_lines = [line for _, line in block]
        if kind == "table" and (write_row or too_wide(block_lines)):
            lines += rows_as_items(block_lines, write_row or row_as_item)
        elif kind == "prose":
            lines += (line for item in items(block_lines) for line in (wrap(item) if too_wide(item) else item))
        else:
            lines += block_lines
    return "\n".join(lines) + "\n"


def too_wide(lines: Sequence[str]) -> bool:
    return any(len(line) > WIDTH for line in lines)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line with its kind: code, table, prose or other."""
    in_code = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        if in_code or fence:
            yield "code", line
            in_code = in_code != fence
        elif line.startswith("|"):
            yield "table", line
        elif not line.strip() or line.startswith(("#", "![")):
            yield "", line
        else:
            yield "prose", line


def items(lines: Sequence[str]) -> list[list[str]]:
    """Split a block of prose into its list items; the lines before the first item are one item."""
    parts: list[list[str]] = []
    for line in lines:
        if not parts or ITEM.match(line):
            parts.append([])
        parts[-1].append(line)
    return parts


def wrap(lines: Sequence[str]) -> list[str]:
    """Wrap an item or a paragraph; further lines are indented like its first word."""
    marker = ITEM.match(lines[0])
    prefix = marker[0] if marker else " " * (len(lines[0]) - len(lines[0].lstrip()))
    words = WORD.findall(" ".join([lines[0][len(prefix) :], *lines[1:]]))
    wrapped_lines = [prefix + words[0]]
    for word in words[1:]:
        if len(wrapped_lines[-1]) + 1 + len(word) <= WIDTH or MARKER.fullmatch(word):
            wrapped_lines[-1] += f" {word}"
        else:
            wrapped_lines.append(" " * len(prefix) + word)
    return wrapped_lines


def cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def rows_as_items(table: Sequence[str], write_row: Callable[[list[str], list[str]], Iterable[str]]) -> list[str]:
    """Return the rows of a table as list items."""
    column_names = cells(table[0])
    return [
        line for row in table[2:] for item_line in write_row(column_names, cells(row)) for line in wrap([item_line])
    ]


def row_as_item(column_names: list[str], row: list[str]) -> Iterator[str]:
    """Yield the first cell of a row as an item, and below it the other cells with the names of their columns."""
    first_cell, *other_cells = row
    name = first_cell if first_cell.startswith(("`", "[")) or not first_cell else f"**{first_cell}**"
    if len(other_cells) == 1:
        yield f"- {name}: {other_cells[0]}" if other_cells[0] else f"- {name}"
        return
    yield f"- {name}"
    for column, cell in zip(column_names[1:], other_cells, strict=True):
        if cell:
            yield f"  - {column}: {cell}" if column else f"  - {cell}"


if __name__ == "__main__":
    main()
