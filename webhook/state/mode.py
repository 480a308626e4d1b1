"""How far we go for a pod: off, observe, warn or enforce; by namespace, then globally, then by canary.

The namespace's label wins over the configuration; a label that is none of the four words counts as not there. The canary
narrows `enforce` only: workloads outside it are treated as `warn`, so that growing it changes nothing but that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from webhook.names import MODE_LABEL
from webhook.state.canary import included

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.state.canary import Workload
    from webhook.state.configuration import Configuration


class Mode(StrEnum):
    """What a decision leads to."""

    OFF = "off"  # nothing is looked at
    OBSERVE = "observe"  # decided, logged and counted; nothing changes and nobody is told
    WARN = "warn"  # the user is told what would happen
    ENFORCE = "enforce"  # it happens

    @property
    def tells(self) -> bool:
        """Whether the user hears of it."""
        return self in (Mode.WARN, Mode.ENFORCE)


_WORDS = frozenset(Mode)


def mode_of(configuration: Configuration, labels: Mapping[str, str], workload: Workload) -> Mode:
    """Say how far to go for a workload in a namespace with these labels."""
    word = labels.get(MODE_LABEL, "")
    mode = Mode(word) if word in _WORDS else Mode(configuration.file.mode)
    if mode is Mode.ENFORCE and not included(workload, configuration.file.canary):
        return Mode.WARN
    return mode
