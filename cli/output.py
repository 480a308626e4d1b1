"""Prints lines of commands, wrapped, coloured and escaped for the terminal, and shows progress.

`--quiet` and `--color` of the running command are read here, so that no command has to pass them on.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from analysis.printable import printable
from cli.terminal import colour_of_change, coloured, cut, fit, marked, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

QUIET, COLOUR, NOTES = f"{__name__}.quiet", f"{__name__}.colour", f"{__name__}.notes"
_PROGRESS_AFTER = 1.0  # seconds
_PROGRESS_EVERY = 0.1  # seconds
_NARROWEST, _WIDEST_HELP = 40, 80  # columns


def width(*, err: bool = False) -> int | None:
    """Return the columns of the terminal (or COLUMNS). None for pipes and files, whose lines are not wrapped."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return None
    return max(_columns(), _NARROWEST)


def _columns() -> int:
    import shutil  # imported here, because `--help` to a pipe does without it

    return shutil.get_terminal_size((80, 24)).columns


def colours(*, err: bool = False) -> bool:
    """Return whether lines may be coloured: by --color, else on a terminal unless NO_COLOR is set."""
    choice = _option(COLOUR)
    if choice in ("always", "never"):
        return choice == "always"
    is_disabled = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not is_disabled


def quiet() -> bool:
    """Return whether --quiet was given."""
    return bool(_option(QUIET))


def program_name() -> str:
    """Return the program's name to show in examples: `drawbridge` if the shell finds it, else the path that the user typed."""
    import shutil

    typed = sys.argv[0]
    return typed if typed.rpartition(os.sep)[2] == "drawbridge" and shutil.which("drawbridge") is None else "drawbridge"


def _option(name: str) -> object:
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(name)


class Help(click.HelpFormatter):
    """Formats help up to 80 columns wide; on a narrow terminal descriptions are below the options."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(width=min(width() or _WIDEST_HELP, _WIDEST_HELP) - 2)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl(rows, col_max if self.width > _WIDEST_HELP // 2 else 0, col_spacing)


class CommandContext(click.Context):
    formatter_class = Help


def print_lines(lines: Iterable[str], *, styled: bool = False, err: bool = False) -> None:
    """Print lines for people; on a terminal long ones are wrapped and indented.

    In `styled` lines the caller has already coloured the text, and escaped the parts that come from input.
    """
    columns, colour = width(err=err), colours(err=err)
    for text in lines:
        shown = text if styled else printable(text)
        pieces = wrapped(shown, columns)
        for piece in marked(shown, pieces) if colour else pieces:
            click.echo(piece, err=err, color=colour)


def print_diff(text: str) -> None:
    """Print a diff: unchanged to a pipe or file; on a terminal coloured, escaped, and cut to its columns."""
    columns, colour = width(), colours()
    if columns is None and not colour:
        click.echo(text, nl=False)
        return
    for line in text.splitlines():
        shown = line if columns is None else printable(line)
        for piece in [shown] if columns is None else cut(shown, columns):
            click.echo(coloured(piece, colour_of_change(line) if colour else ""), color=colour)


def print_to_stderr(text: str) -> None:
    """Print a line on standard error, even with --quiet."""
    print_lines([text], err=True)


def note(text: str) -> None:
    """Print a line on standard error, unless --quiet; a command that answers prints the line below its answer."""
    ctx = click.get_current_context(silent=True)
    if not quiet():
        (print_to_stderr if ctx is None or NOTES not in ctx.meta else ctx.meta[NOTES].append)(text)


def warn(text: str) -> None:
    """Print a warning as a note."""
    note(f"warning: {text}")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show a progress line on a terminal for work that takes more than a second, and erase it at the end."""
    shown_at = time.monotonic() + _PROGRESS_AFTER - _PROGRESS_EVERY
    is_enabled = sys.stderr.isatty() and not quiet()
    is_shown = False

    def show(text: str) -> None:
        nonlocal shown_at, is_shown
        now = time.monotonic()
        if not is_enabled or now - shown_at < _PROGRESS_EVERY:
            return
        shown_at = now
        is_shown = True
        columns = _columns() - 1
        click.echo(f"\r{fit(printable(text), columns)}", nl=False, err=True)

    try:
        yield show
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)
