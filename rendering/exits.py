"""How a command ends: its exit codes, and the errors that end it."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of all commands."""

    FINE = 0
    REFUSED = 1  # refused, infeasible, or findings at or above --fail-on
    BROKEN = 2  # invalid input or usage
    UNDECIDED = 3  # no decision was reached, or the environment failed


class CommandEnded(Exception):  # noqa: N818  not always an error of ours
    """Ends a command early with an exit code, a message and a remedy."""

    exit = Exit.UNDECIDED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Broken(CommandEnded):
    """Invalid input: exit 2. For several problems raise a ManifestError."""

    exit = Exit.BROKEN


class MissingObject(CommandEnded):
    """No object has this name: exit 1."""

    exit = Exit.REFUSED


class CommandFailed(CommandEnded):
    """The environment failed, or there is no decision: exit 3."""


class NoCluster(CommandFailed):
    """No cluster is configured. A command that also reads files suggests them."""
