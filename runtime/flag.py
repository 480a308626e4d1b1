"""How a setting is given on a command line: declared once, at the field that holds it; `cli.settings` makes the option.

    notice: Annotated[float, Flag("Seconds to serve on after SIGTERM.", least=0)] = 5.0

is an option `--notice` that takes a number, with this help and this default. A field without a flag has no option; a field
marked with `OPTIONS` is a struct, and the fields of that have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Flag(NamedTuple):
    """What the type and the default of a field do not say of its option."""

    help: str
    metavar: str = ""
    name: str = ""  # "" is the field's own
    old: str = ""  # how the option was spelled before
    least: float | None = None
    most: float | None = None
    read: Callable[[str], Any] | None = None  # makes the value of the text; raises ValueError with the reason
    absent: Callable[[], str] | None = None  # gives the value where none is given, as from the environment


OPTIONS = "options"  # instead of a flag: the fields of this field's type have them
