"""How far we go for a pod: off, observe, warn or enforce; by namespace, then globally, then by canary.

The namespace's label wins over the configuration; an empty one counts as not there. The canary narrows `enforce` only:
workloads outside it are treated as `warn`, so that growing it changes nothing but that.

So is a namespace of which it is unknown what it allows, because it or a quota or a range in it could not be read, or because its
label is not one of the four words: `Off` was not meant as `enforce`. Once translated, a pod could not be taken back.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from webhook.names import MODE_LABEL
from webhook.state.configuration import Configuration

if TYPE_CHECKING:
    from webhook.state.canary import Workload
    from webhook.state.state import State


class Mode(StrEnum):
    """What a decision leads to."""

    OFF = "off"  # nothing is looked at
    OBSERVE = "observe"  # decided, logged and counted; nothing changes and users get no warning
    WARN = "warn"  # the user is told what would happen
    ENFORCE = "enforce"  # it happens

    @property
    def tells(self) -> bool:
        """Whether the user hears of it."""
        return self in (Mode.WARN, Mode.ENFORCE)


_WORDS = tuple(Mode)
_MODES: dict[str, Mode] = {mode.value: mode for mode in Mode}


def mode_of(state: State, workload: Workload) -> Mode:
    """Say how far to go for a workload."""
    file = state.configuration.file
    labels = state.namespaces.get(workload.namespace)
    word = labels.get(MODE_LABEL, "") if labels else ""
    said = _MODES.get(word)
    mode = said or _MODES[file.mode]
    if mode is not Mode.ENFORCE:
        return mode
    is_misspelt = word and said is None
    if is_misspelt or workload.namespace in state.unsure or (file.canary < 100 and not workload.within(file.canary)):
        return Mode.WARN
    return mode


def doubts(state: State, namespace: str) -> tuple[str, ...]:
    """Say why it is unknown what may be done in a namespace."""
    unread = tuple([f"{kind} could not be read" for kind in state.unsure.get(namespace, ())])
    labels = state.namespaces.get(namespace)
    wrong = mistake_of(labels.get(MODE_LABEL, "")) if labels else ""
    return (*unread, wrong) if wrong else unread


def why_not(state: State, namespace: str) -> str:
    """Say by whose word a namespace has another mode than `enforce`; "" where only the canary keeps a workload from it."""
    labels = state.namespaces.get(namespace, {})
    word = labels.get(MODE_LABEL, "")
    if word in _WORDS:
        return f"its namespace {namespace} has the label {MODE_LABEL}={word}"
    reasons = doubts(state, namespace)
    if reasons:
        return f"in its namespace {namespace} {' and '.join(reasons)}"
    mode = state.configuration.file.mode
    return "" if Mode(mode) is Mode.ENFORCE else f"the configuration says mode: {mode}"


def everywhere(state: State, mode: Mode, *, but: frozenset[Mode] = frozenset()) -> State:
    """The same state with one mode for all, `but` for namespaces whose label says one of these."""
    namespaces = {}
    for name, labels in state.namespaces.items():
        keeps = labels.get(MODE_LABEL, "") in but
        namespaces[name] = labels if keeps else {**labels, MODE_LABEL: mode}
    file = msgspec.structs.replace(
        state.configuration.file,
        mode=mode.value,
        canary=100,
    )
    configuration = Configuration(file)
    return msgspec.structs.replace(state, configuration=configuration, namespaces=namespaces)


def mistake_of(word: str) -> str:
    """Say what is wrong with the word of a namespace's label; "" if nothing is."""
    if not word or word in _WORDS:
        return ""
    return f"its label {MODE_LABEL} says {word!r}, which is not one of {', '.join(_WORDS)}"
