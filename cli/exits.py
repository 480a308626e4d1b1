"""How a command ends: its exit codes."""

from __future__ import annotations

from enum import IntEnum

from analysis.errors import Failed


class Exit(IntEnum):
    """The exit codes of all commands."""

    FINE = 0
    REFUSED = 1  # refused, infeasible, or findings at or above --fail-on
    BROKEN = 2  # invalid input or usage
    UNDECIDED = 3  # no decision was reached, or the environment failed


class NoCluster(Failed):
    """No cluster is configured. A command that also reads files suggests them."""
