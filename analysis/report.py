"""The report of a command or a page, as a value."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# The outcomes of a pod, as signs.
PLACED, LEFT, WAITS, REFUSED = "✓", "·", "…", "✗"


class Marked(msgspec.Struct, frozen=True):
    """An outcome or a severity, which the dashboard shows in its colour."""

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
Cell = str | int | Marked | CodeSpan | Own | Why | tuple[str | Own, ...]


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
Part = str | Own | Rows | Screen


class Report(msgspec.Struct, frozen=True):
    """The report of a command. Markdown begins with the summary; on a terminal the summary is last."""

    title: str
    parts: Sequence[Part]
    summary: str = ""
