"""How a command ends: its exit codes."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from analysis.errors import Broken, Failed, MissingObject

if TYPE_CHECKING:
    from analysis.errors import NoAnswer


class Exit(IntEnum):
    """The exit codes of all commands."""

    FINE = 0
    REFUSED = 1  # refused, infeasible, or findings at or above --fail-on
    BROKEN = 2  # invalid input or usage
    UNDECIDED = 3  # no decision was reached, or the environment failed


class NoCluster(Failed):
    """No cluster is configured. A command that also reads files suggests them."""


def exit_of(error: NoAnswer) -> Exit:
    """Return the exit code of an error."""
    match error:
        case Broken():
            return Exit.BROKEN
        case MissingObject():
            return Exit.REFUSED
        case _:
            return Exit.UNDECIDED
