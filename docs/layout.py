"""Wraps the lines of pages at 120 characters.

Blocks of code and tables stay unchanged. Code spans and links are never split over two lines.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH = 120
ITEM = re.compile(r"(\s*)([-*]|\d+\.) +(?=\S)")
WORD = re.compile(r"(?:`+[^`]*`+|\[[^\]]*\]\([^)]*\)|\S)+")
MARKER = re.compile(r"[-+*>#=|]+|\d+[.)]")  # words that would begin a list or a heading if a line began with them


def lay_out(text: str) -> str:
    """Wrap long lines of prose."""
    lines: list[str] = []
    for kind, block in groupby(blocks(text), key=lambda kind_and_line: kind_and_line[0]):
        block_lines = [line for _, line in block]
        if kind == "prose":
            lines += (line for item in items(block_lines) for line in (wrap(item) if too_wide(item) else item))
        else:
            lines += block_lines
    return "\n".join(lines) + "\n"


def too_wide(lines: Sequence[str]) -> bool:
    return any(len(line) > WIDTH for line in lines)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each line with its kind: code, prose or other."""
    in_code = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        if in_code or fence:
            yield "code", line
            in_code = in_code != fence
        elif not line.strip() or line.startswith(("#", "![", "|")):
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
