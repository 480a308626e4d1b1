"""Lays pages out: `python -m docs.layout PAGE...` wraps lines at 120 characters and turns tables that are too wide into lists.

Code stands as it is, and no code span or link is broken over two lines.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH = 120
ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(?=\S)")
WORD = re.compile(r"(?:`+[^`]*`+|\[[^\]]*\]\([^)]*\)|\S)+")
MARKER = re.compile(r"[-+*>#=|]+|\d+[.)]")  # words that would begin a list or a heading at the start of a line


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(laid_out(page.read_text(encoding="utf-8")), encoding="utf-8")


def laid_out(text: str) -> str:
    """Wrap paragraphs and items with a line that is too long, and write tables with such a row as lists."""
    lines: list[str] = []
    for kind, block in groupby(blocks(text), key=lambda one: one[0]):
        part = [line for _, line in block]
        if kind == "table" and too_wide(part):
            lines += items_of(part)
        elif kind == "prose":
            lines += (line for item in items(part) for line in (wrapped(item) if too_wide(item) else item))
        else:
            lines += part
    return "\n".join(lines) + "\n"


def too_wide(lines: Sequence[str]) -> bool:
    return any(len(line) > WIDTH for line in lines)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Say of each line whether it is code, a table, prose or none of these."""
    code = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        if code or fence:
            yield "code", line
            code = code != fence
        elif line.startswith("|"):
            yield "table", line
        elif not line.strip() or line.startswith(("#", "![")):
            yield "", line
        else:
            yield "prose", line


def items(lines: Sequence[str]) -> list[list[str]]:
    """Part a block of prose into its list items; the lines before the first item are one of them."""
    parts: list[list[str]] = []
    for line in lines:
        if not parts or ITEM.match(line):
            parts.append([])
        parts[-1].append(line)
    return parts


def wrapped(lines: Sequence[str]) -> list[str]:
    """Wrap an item or a paragraph; what is in it goes on below its first word."""
    marker = ITEM.match(lines[0])
    first = marker[0] if marker else " " * (len(lines[0]) - len(lines[0].lstrip()))
    words = WORD.findall(" ".join([lines[0][len(first) :], *lines[1:]]))
    made = [first + words[0]]
    for word in words[1:]:
        if len(made[-1]) + 1 + len(word) <= WIDTH or MARKER.fullmatch(word):
            made[-1] += f" {word}"
        else:
            made.append(" " * len(first) + word)
    return made


def cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def items_of(table: Sequence[str]) -> list[str]:
    """Write the rows of a table as items: the first cell, and below it the others with the names of their columns."""
    _, *names = cells(table[0])
    made: list[str] = []
    for row in table[2:]:
        first, *others = cells(row)
        name = first if first.startswith(("`", "[")) or not first else f"**{first}**"
        if len(names) == 1:
            made += wrapped([f"- {name}: {others[0]}" if others[0] else f"- {name}"])
        else:
            made += wrapped([f"- {name}"])
            for column, cell in zip(names, others, strict=True):
                if cell:
                    made += wrapped([f"  - {column}: {cell}" if column else f"  - {cell}"])
    return made


if __name__ == "__main__":
    main()
