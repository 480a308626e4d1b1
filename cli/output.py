"""What commands print: lines for people that fit the terminal and cannot do anything to it, colour where there is one, progress.

`--quiet` and `--color` of the command that runs are read here, so that no command has to ask for them.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.terminal import fit, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

QUIET, COLOUR = f"{__name__}.quiet", f"{__name__}.colour"
# What takes less than a second has no progress.
_PATIENCE = 1.0
_OFTEN = 0.1


def width() -> int | None:
    """How many columns the terminal has (or COLUMNS says it has). None for pipes and files, which get whole lines."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def colours() -> bool:
    """Say whether lines may be coloured: as --color says, else on a terminal unless NO_COLOR is set."""
    wanted = _said(COLOUR)
    if wanted in ("always", "never"):
        return wanted == "always"
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not dumb


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


def tell(lines: Iterable[str], *, styled: bool = False) -> None:
    """Print lines for people. On a terminal, one that is too long goes on below itself, further in.

    What is `styled` was made for the terminal already: escapes in texts of others are taken out, and a line with escapes of its own fits.
    """
    columns = width()
    for text in lines:
        if styled and "\x1b" in text:
            click.echo(text, color=True)
            continue
        shown = text if styled else printable(text)
        for piece in _pieces(shown, columns):
            click.echo(piece)


def _pieces(text: str, columns: int | None) -> list[str]:
    if columns is None or len(text) <= columns:
        return [text]
    inside = " " * (len(text) - len(text.lstrip()) + 4)
    return textwrap.wrap(
        text,
        columns,
        subsequent_indent=inside,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )


def complain(text: str) -> None:
    """Print a line on standard error that --quiet does not leave out."""
    click.echo(printable(text), err=True)


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
