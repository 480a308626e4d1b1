"""What became of each key, in the words that people read: decisions, warnings and refusals.

A warning names container, key and reason, and keeps to the 256 bytes that clients show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects import Action, Refusal
from webhook.translate.pod_view import equal

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.translate.case import Case
    from webhook.translate.checks import Verdict
    from webhook.translate.owner import Owners

_LONGEST = 256  # bytes of a warning that clients keep


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What became of one key on one container ("" for the pod as a whole)."""

    object: str
    container: str
    dialect: str
    key: str
    action: Action
    detail: str


class Report:
    """Collects what is said about one pod, in the order in which it is found."""

    __slots__ = ("_approximations", "_decisions", "_object", "_refusals", "_warnings")

    def __init__(self, object_: str, approximations: str) -> None:
        self._object = object_
        self._approximations = approximations
        self._decisions: list[Decision] = []
        self._warnings: list[str] = []
        self._refusals: list[str] = []

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._decisions)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._warnings))

    @property
    def refusals(self) -> tuple[str, ...]:
        return tuple(self._refusals)

    def add(self, verdict: Verdict, whose: Owners) -> None:
        """Report every case, and the known keys that play no part."""
        spoken = set()
        for case in verdict.cases:
            spoken.add(case.dialect.name)
            self._case(case)
        for dialect, hint in whose.ignored:
            if dialect in spoken and hint.row.action is Action.IGNORED:
                self._decide("", dialect, hint.key, Action.IGNORED, hint.row.because)
                self._warnings.append(_cut(f"{hint.key}: ignored: {hint.row.because}"))

    def _case(self, case: Case) -> None:
        dialect = case.dialect.name
        if case.left:
            self._left(case)
        elif case.refusals:
            for refusal in case.refusals:
                self.refused(case.container, dialect, refusal)
        else:
            said = {note.key for note in case.notes}
            for note in case.notes:
                self._decide(case.container, dialect, note.key, note.action, note.detail)
                if note.action is Action.APPROXIMATED and self._approximations == "warn":
                    self._warnings.append(_cut(f"{_who(case.container)}{note.key}: approximated: {note.detail}"))
                elif note.action is Action.IGNORED and note.key not in case.keys:
                    self._warnings.append(_cut(f"{note.key}: ignored: {note.detail}"))
            for key in case.keys:
                if key not in said:
                    self._decide(case.container, dialect, key, Action.TRANSLATED, "")

    def _left(self, case: Case) -> None:
        assert case.left
        cause, reason = case.left.key, case.left.reason
        keys = case.keys if cause in case.keys else (cause, *case.keys)
        for key in keys:
            text = reason if key == cause else f"stays with {cause}"
            self._decide(case.container, case.dialect.name, key, Action.LEFT, text)
        if not case.quiet:
            self._warnings.append(_cut(f"{_who(case.container)}{cause}: left as it is: {reason}"))

    def refused(self, container: str, dialect: str, refusal: Refusal) -> None:
        """Report that a pod can't be admitted."""
        self._decide(container, dialect, refusal.key, Action.REFUSED, refusal.reason)
        remedy = f" ({refusal.remedy})" if refusal.remedy else ""
        self._refusals.append(f"{_who(container)}{refusal.key}: {refusal.reason}{remedy}")

    def back(self, container: str, key: str, now: Json, before: Json) -> None:
        """Report a key that another webhook put back: the same number is removed again, another one is a second request."""
        if equal(now, before):
            self._decide(container, "", key, Action.TRANSLATED, "was put back by another webhook and is removed again")
            return
        reason = f"was translated as {before} and is asked for again as {now}: another webhook adds it"
        self.refused(container, "", Refusal(key, reason, "switch that webhook off for this pod"))

    def _decide(self, container: str, dialect: str, key: str, action: Action, detail: str) -> None:
        self._decisions.append(Decision(self._object, container, dialect, key, action, detail))


def _who(container: str) -> str:
    return f"container {container}: " if container else "pod: "


def _cut(text: str) -> str:
    data = text.encode()
    return text if len(data) <= _LONGEST else data[: _LONGEST - 3].decode(errors="ignore") + "…"
