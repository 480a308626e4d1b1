"""Declares the command-line option of a setting at the field that holds it; `cli.server_options` creates the option.

    notice: Annotated[float, Flag("How long to continue serving after SIGTERM.", metavar="SECONDS", least=0)] = 5.0

becomes an option `--notice` that takes a number, with this help and this default. A field without a `Flag` has no option. A field
that is annotated with `OPTIONS` is a struct whose fields have options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Flag(NamedTuple):
    """What an option needs besides the type and the default of its field."""

    help: str
    metavar: str = ""
    name: str = ""  # the option's name, if it is not the field's
    least: float | None = None
    most: float | None = None
    read: Callable[[str], Any] | None = None  # parses the text; raises ValueError with the reason
    show: Callable[[Any], str] = str  # writes the default as `read` parses it
    absent: Callable[[], str] | None = None  # returns the default, for example from the environment


OPTIONS = "options"  # instead of a Flag, on a field whose type is a struct of settings
