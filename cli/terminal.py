"""Prepares text for terminals: aligns columns, wraps and colours; escapes JSON."""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from analysis.printable import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

_UNSEEN_IN_JSON = re.compile(UNSEEN.pattern.replace("\x00-\x1f", ""))  # JSON itself has line breaks
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_ELLIPSIS = "…"
WIDEST = 63 + len("/") + 253  # columns of a table's column: the longest NAMESPACE/NAME
_COLOUR_CODE = re.compile("\x1b\\[[0-9;]*m")
_WORD = re.compile(" *[^ ]+")
# Words at the start of a line that are coloured.
_MARKS = {
    "red": ("error", "refused", "fail", "beyond"),
    "yellow": ("warning", "assumed", "approximated", "left"),
    "green": ("translated", "pass", "within"),
    "cyan": ("info",),
}
_MARK = re.compile(rf"(?: *|.*?:\d+: ?)({'|'.join(chain.from_iterable(_MARKS.values()))})\b(?=[: ])")


def escaped_in_json(document: str) -> str:
    """Escape the same characters in the strings of a JSON document, without changing its meaning."""
    if document.isascii():
        return document
    import json

    return _UNSEEN_IN_JSON.sub(lambda match: json.dumps(match.group())[1:-1], document)


def aligned(rows: Sequence[Sequence[str]], numbers: Container[int] = (), columns: int | None = None) -> list[list[str]]:
    """Write each row of a table as lines with aligned columns; the columns in `numbers` are aligned to the right.

    With `columns`, the widest columns are narrowed until the table fits, and their cells are wrapped; words are never broken. A cell that
    is wider than its column displaces only the cells to its right.
    """
    widths = [min(max(map(columns_of, column)), WIDEST) for column in zip(*rows, strict=True)]
    if columns is not None:
        least = [
            max(columns_of(word) for cell in column for word in (*cell.split(" "), ""))
            for column in zip(*rows, strict=True)
        ]
        for _ in range(sum(widths) + 2 * len(widths) - columns):
            slack, widest = max(
                (width if width > word else 0, index)
                for index, (width, word) in enumerate(zip(widths, least, strict=True))
            )
            widths[widest] -= slack > 0
    return [
        _row(
            [list(wrapped(cell, columns and width, 0)) for cell, width in zip(row, widths, strict=True)],
            widths,
            numbers,
        )
        for row in rows
    ]


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int], numbers: Container[int]) -> list[str]:
    """Write the lines of the cells of one row beside each other."""
    return [
        "  "
        + "  ".join(
            piece.rjust(width) if index in numbers else piece + " " * (width - columns_of(piece))
            for index, (piece, width) in enumerate(zip(pieces, widths, strict=True))
        ).rstrip()
        for pieces in zip_longest(*cells, fillvalue="")
    ]


def columns_of(text: str) -> int:
    """Return the columns of a printable text: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Pad a text to a number of columns, or cut it."""
    used = columns_of(text)
    if used <= columns:
        return text + " " * (columns - used)
    shown = ""
    remaining = columns - 1
    for character in text:
        remaining -= _columns(character)
        if remaining < 0:
            break
        shown += character
    return shown + _ELLIPSIS + " " * (columns - 1 - columns_of(shown))


def wrapped(text: str, columns: int | None, further: int = 4) -> Iterator[str]:
    """Wrap a line at blanks, and indent the continuation by `further` columns, up to half of the line. Words are never broken."""
    if columns is None or _visible_columns(text) <= columns:
        yield text
        return
    inside = " " * min(len(text) - len(text.lstrip(" ")) + further, columns // 2)
    line = ""
    for word in _WORD.findall(text.rstrip(" ")):  # without rstrip, blanks that no word follows take quadratic time
        if line.strip() and _visible_columns(line) + _visible_columns(word) > columns:
            yield line
            line = inside + word.lstrip(" ")
        else:
            line += word
    yield line


def _visible_columns(text: str) -> int:
    return columns_of(_COLOUR_CODE.sub("", text))


def cut(text: str, columns: int) -> Iterator[str]:
    """Break a line after every `columns` columns, inside words, too."""
    line, remaining = "", columns
    for character in text:
        remaining -= _columns(character)
        if remaining < 0:
            yield line
            line, remaining = "", columns - _columns(character)
        line += character
    yield line


def coloured(text: str, colour: str) -> str:
    """Colour a text; without a colour it is unchanged."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour else text


def marked(text: str, pieces: Iterable[str]) -> Iterator[str]:
    """Colour the severity or outcome at the start of a line (or after `file:line:`), in the line's wrapped pieces."""
    mark = _MARK.match(text)
    for piece in pieces:
        match = re.search(rf"(?<!\S){mark[1]}\b", piece) if mark else None
        if match is None:
            yield piece
            continue
        word = match.group()
        colour = next(colour for colour, words in _MARKS.items() if word in words)
        yield piece[: match.start()] + coloured(word, colour) + piece[match.end() :]
        mark = None


def colour_of_change(line: str) -> str:
    """Return the colour of a diff line, as in git."""
    if line.startswith(("+++", "---", "diff ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
