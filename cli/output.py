"""What commands print: lines for people that fit the terminal and cannot do anything to it, colour where there is one, progress.

`--quiet` and `--color` of the command that runs are read here, so that no command has to ask for them.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.terminal import colour_of_change, coloured, cut, fit, marked, printable, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

QUIET, COLOUR = f"{__name__}.quiet", f"{__name__}.colour"
# What takes less than a second has no progress.
_PATIENCE = 1.0
_OFTEN = 0.1
_NARROWEST, _WIDEST = 40, 80  # columns


def width(*, err: bool = False) -> int | None:
    """How many columns the terminal has (or COLUMNS says it has). None for pipes and files, which get whole lines."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return None
    return max(shutil.get_terminal_size((80, 24)).columns, _NARROWEST)


def colours(*, err: bool = False) -> bool:
    """Say whether lines may be coloured: as --color says, else on a terminal unless NO_COLOR is set."""
    wanted = _said(COLOUR)
    if wanted in ("always", "never"):
        return wanted == "always"
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not dumb


def quiet() -> bool:
    """Say whether only the answer is wanted, without warnings and progress."""
    return bool(_said(QUIET))


def called() -> str:
    """How a user calls us again: by name where the shell finds it, else by the path that was typed."""
    typed = sys.argv[0]
    return typed if Path(typed).name == "drawbridge" and shutil.which("drawbridge") is None else "drawbridge"


def _said(what: str) -> object:
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.meta.get(what)


class Help(click.HelpFormatter):
    """A help as wide as the terminal, up to 80 columns; on a narrow one what options mean stands below them."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(width=min(width() or _WIDEST, _WIDEST) - 2)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write what words mean."""
        super().write_dl(rows, col_max if self.width > _WIDEST // 2 else 0, col_spacing)


class CommandContext(click.Context):
    """What click knows of a command that runs."""

    formatter_class = Help


def tell(lines: Iterable[str], *, styled: bool = False, err: bool = False) -> None:
    """Print lines for people. On a terminal, one that is too long goes on below itself, further in.

    What is `styled` has its colours already, and no escapes in texts of others.
    """
    columns, colour = width(err=err), colours(err=err)
    for text in lines:
        shown = text if styled else printable(text)
        pieces = wrapped(shown, columns)
        for piece in marked(shown, pieces) if colour else pieces:
            click.echo(piece, err=err, color=colour)


def tell_change(text: str) -> None:
    """Print a diff: as it is for programs; on a terminal in colours, harmless, and within its columns."""
    columns, colour = width(), colours()
    if columns is None and not colour:
        click.echo(text, nl=False)
        return
    for line in text.splitlines():
        shown = line if columns is None else printable(line)
        for piece in [shown] if columns is None else cut(shown, columns):
            click.echo(coloured(piece, colour_of_change(line) if colour else ""), color=colour)


def complain(text: str) -> None:
    """Print a line on standard error that --quiet does not leave out."""
    tell([text], err=True)


def warn(text: str) -> None:
    """Print a warning on standard error, unless --quiet."""
    if not quiet():
        complain(f"warning: {text}")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show on a terminal how far something is that takes more than a second; the line is gone afterwards."""
    begun = time.monotonic()
    shown = begun + _PATIENCE - _OFTEN
    able = sys.stderr.isatty() and not quiet()
    used = False

    def show(text: str) -> None:
        nonlocal shown, used
        now = time.monotonic()
        if not able or now - shown < _OFTEN:
            return
        shown = now
        used = True
        columns = shutil.get_terminal_size((80, 24)).columns - 1
        click.echo(f"\r{fit(printable(text), columns)}", nl=False, err=True)

    try:
        yield show
    finally:
        if used:
            click.echo("\r\x1b[K", nl=False, err=True, color=True)
