"""Words on a terminal or a page: lists and counts, the columns a text takes, colour, and escapes made harmless. Pure.

A name from a cluster or a file may hold escape sequences, which a terminal obeys, and marks that turn the direction of writing round.
They are shown as what they are.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Control characters, half surrogates, separators of lines, and what changes the direction of writing or is not seen.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# What the runners of GitHub and Azure take for a command: `::` where a line begins, `##[` and `##vso[` anywhere.
_COMMAND = re.compile(r"^(\s*)(:)(?=:)|#(?=#(?:vso)?\[)")
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_ELLIPSIS = "…"
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_WORD = re.compile(" *[^ ]+")
# Words that begin a line about something.
_MARKS = {
    "red": ("error", "refused", "fail", "beyond"),
    "yellow": ("warning", "assumed", "approximated", "ignored", "left"),
    "green": ("translated", "pass", "within"),
    "cyan": ("info",),
}
_MARK = re.compile(rf"(?: *|.*?:\d+: ?)({'|'.join(chain.from_iterable(_MARKS.values()))})\b(?=[: ])")


def printable(text: str) -> str:
    """Show what a terminal, or the log of a CI job, would obey as an escape: ESC as its number."""
    if "::" in text or "##" in text:
        text = _COMMAND.sub(lambda found: f"{found[1]}\\x3a" if found[2] else "\\x23", text)
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def escaped(value: object) -> str:
    """Write a text from a cluster or a file into HTML or SVG."""
    return escape(printable(str(value)), quote=True)


def few(names: Sequence[str], most: int) -> str:
    """List the first of some names, and count the rest."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def count_of(number: int, word: str) -> str:
    """A number and what it counts: 1 pod, 2,000 pods."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write the rows of a table, each as a line whose cells stand below one another."""
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(fit, row, widths)).rstrip() for row in rows]


def columns_of(text: str) -> int:
    """How many columns a printable text takes: two for a wide character, none for an accent on the one before."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, columns: int) -> str:
    """Fill a text up to a number of columns, or cut it there."""
    taken = columns_of(text)
    if taken <= columns:
        return text + " " * (columns - taken)
    kept = ""
    left = columns - 1
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept += character
    return kept + _ELLIPSIS + " " * (columns - 1 - columns_of(kept))


def wrapped(text: str, columns: int | None, further: int = 4) -> Iterator[str]:
    """Break a line at blanks where it has more columns than there are; what follows stands further in. A word is never broken."""
    if columns is None or _seen(text) <= columns:
        yield text
        return
    inside = " " * (len(text) - len(text.lstrip(" ")) + further)
    line = ""
    for word in _WORD.findall(text):
        if line.strip() and _seen(line) + _seen(word) > columns:
            yield line
            line = inside + word.lstrip(" ")
        else:
            line += word
    yield line


def _seen(text: str) -> int:
    return columns_of(_COLOUR.sub("", text))


def cut(text: str, columns: int) -> Iterator[str]:
    """Break a line after so many columns, wherever that is."""
    line, left = "", columns
    for character in text:
        left -= _columns(character)
        if left < 0:
            yield line
            line, left = "", columns - _columns(character)
        line += character
    yield line


def coloured(text: str, colour: str) -> str:
    """Give a text a colour, for who has asked whether there may be any."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if colour else text


def marked(text: str, pieces: Iterable[str]) -> Iterator[str]:
    """Give the word of a line that says how grave it is its colour, in the pieces of the line: its first word, or the first after a place."""
    found = _MARK.match(text)
    for piece in pieces:
        here = re.search(rf"(?<!\S){found[1]}\b", piece) if found else None
        if here is None:
            yield piece
            continue
        word = here.group()
        colour = next(colour for colour, words in _MARKS.items() if word in words)
        yield piece[: here.start()] + coloured(word, colour) + piece[here.end() :]
        found = None


def colour_of_change(line: str) -> str:
    """The colour of a line of a diff, as git has it."""
    if line.startswith(("+++", "---", "diff ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
