"""Collects the decisions, warnings and refusals about a pod.

`webhook.admission.admission_review` shortens warnings for the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from dra.finding import Finding, stated
from webhook.dialects import REPLACED, WHOLE, Outcome, dropped_detail, refuse
from webhook.refusals import Code
from webhook.translate.pod_view import equal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.reason import Reason
    from dra.wire import Json
    from webhook.translate.case import Case
    from webhook.translate.checks import CheckedPod
    from webhook.translate.owner import Owners
    from webhook.translate.pod_view import LegacyKey, Slot


class Decision(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The decision about one key on one container ("" for the pod as a whole)."""

    object: str
    container: str
    dialect: str
    key: str
    outcome: Outcome
    detail: str
    # The code and the remedy of a refusal or a finding.
    code: str = ""
    remedy: str = ""
    # The evidence for the meaning of a unit of the key.
    basis: str = ""
    # Whether the meaning is only assumed, because no inventory shows it.
    meaning_assumed: bool = False
    # Why the template keeps the key, if the webhook translates the pods instead.
    keep_reason: str = ""
    # The outcome that the key would have if the mode allowed it, or if the object were not refused.
    potential_outcome: str = ""
    # The mode that does not allow the outcome. With `observe` and `warn`, all fields but `outcome` describe what the mode prevents.
    mode: str = ""
    # What must change before the key can be translated or served.
    until: str = ""
    # The pointer to the pod template, if the object has several.
    template: str = ""
    # The requested amount as it is written; "" for a key that requests nothing by itself.
    amount: str = ""
    # The pointer to the key, or to what has it.
    pointer: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """The template, the container and the key."""
        return self.template, self.container, self.key

    @property
    def reason(self) -> str:
        """Why the key has its outcome, as text for a message."""
        if not (self.mode and self.potential_outcome):
            return self.detail
        return f"{self.mode}: would be {self.potential_outcome}{f': {self.detail}' if self.detail else ''}"

    def enforced(self) -> Self:
        """Return the decision as it would be in mode `enforce`."""
        if not (self.mode and self.potential_outcome):
            return self
        return replace(self, outcome=Outcome(self.potential_outcome), potential_outcome="", mode="")


def decides_outcome(decision: Decision) -> bool:
    """Return whether a decision counts for the outcome of a pod. Decisions about selectors, variables and annotations that stay do not count."""
    if decision.outcome not in (Outcome.LEFT, Outcome.UNKNOWN) or decision.key.startswith("/"):  # a field of the object
        return True
    # A dialect's decision may be about the whole pod, without a container.
    return bool(decision.dialect) or (bool(decision.container) and bool(decision.code or "/" in decision.key))


def outcome_of(decisions: Iterable[Decision]) -> Outcome | None:
    """Return the outcome of a pod, or of an object's pods, by the outcomes of its keys; None without keys.

    It is `partly` if claims replace only some of the keys.
    """
    all_decisions = tuple(decisions)
    requests = [decision for decision in all_decisions if decides_outcome(decision)]
    outcomes = {
        request.outcome
        for request in requests or all_decisions
        if request.key or request.potential_outcome or request.outcome is Outcome.REFUSED
    }
    if Outcome.REFUSED in outcomes:
        return Outcome.REFUSED
    replaced = outcomes.intersection(REPLACED)
    if replaced and len(replaced) < len(outcomes):
        return Outcome.PARTLY
    for outcome in (Outcome.APPROXIMATED, Outcome.TRANSLATED, Outcome.UNKNOWN, Outcome.LEFT, Outcome.SERVED):
        if outcome in outcomes:
            return outcome
    return None


class PodReport:
    """Collects decisions, warnings and refusals about one pod, in order."""

    __slots__ = ("_approximations", "decisions", "object_name", "refusals", "warnings")

    def __init__(self, object_: str, approximations: str) -> None:
        self.object_name = object_
        self._approximations = approximations
        self.decisions: list[Decision] = []
        self.warnings: list[str] = []
        self.refusals: list[Finding] = []

    def add(self, verdict: CheckedPod, owners: Owners) -> None:
        """Report every case, and the known keys that no claim expresses."""
        dialects = set()
        for case in verdict.cases:
            if case.left:
                self._add_left(case)
            elif case.refusals:
                for refusal in case.refusals:
                    self.refuse(case.container, case.dialect.name, refusal)
            else:
                dialects.add(case.dialect.name)
                self._add_translated(case)
        scheduled = owners.scheduled
        if verdict.scheduler:
            self._decide("", "", "schedulerName", Outcome.TRANSLATED, f"the pod is assigned to {verdict.scheduler}")
        elif scheduled and verdict.translated:
            self._decide("", "", scheduled.key, Outcome.LEFT, scheduled.row.because)
        for key, (dialect, text) in verdict.packed.items():
            self._decide("", dialect, key, Outcome.APPROXIMATED, text)
            self._warn_of_loss(key, text)
        for dialect, hint in owners.without_role:
            if dialect in dialects and hint.key not in verdict.packed and hint.row.is_dropped:
                text = dropped_detail(hint.row.because)
                self._decide("", dialect, hint.key, Outcome.APPROXIMATED, text)
                self._warn_of_loss(hint.key, text, is_dropped=True)

    def _add_translated(self, case: Case) -> None:
        dialect = case.dialect.name
        keys_without_note = dict.fromkeys(case.keys)  # keys without a note
        for note in case.notes:
            key, outcome = note.key, note.outcome
            keys_without_note.pop(key, None)
            unit = case.unit if key == case.bare else WHOLE
            decision = Decision(self.object_name, case.container, dialect, key, outcome, note.detail, code=note.code)
            if unit is not WHOLE:
                decision = replace(decision, basis=unit.basis, meaning_assumed=unit.assumed)
            self.decisions.append(decision)
            if outcome is Outcome.APPROXIMATED:
                self._warn_of_loss(f"{_subject(case.container)}{key}", note.detail, is_dropped=note.is_dropped)
            elif note.code:
                self._warn(f"{_subject(case.container)}{key}: {note.detail}")
        for key in keys_without_note:
            self._decide(case.container, dialect, key, Outcome.TRANSLATED, "")

    def _add_left(self, case: Case) -> None:
        assert case.left
        cause, reason = case.left.causes[0], case.left.text
        keys = case.keys
        if case.left.code and cause not in keys:
            slots = [slot.name for slot, _ in case.slot_keys if cause in slot.limits]
            self._not_understood(slots[0], cause, reason, case.left.code)
        elif cause not in keys:
            keys = (cause, *keys)
        for key in keys:
            text, code = (reason, case.left.code) if key == cause else (case.why_left(key), "")
            outcome = Outcome.SERVED if case.served and key == cause else Outcome.LEFT
            self._decide(case.container, case.dialect.name, key, outcome, text, code=code)
        if not case.quiet and not case.keeps:  # no warning where the kubelet serves the request as before
            self._warn(f"{_subject(case.container)}{cause}: left as it is: {reason}")

    def leave_pod(self, left: Reason, slots: Iterable[tuple[Slot, Iterable[LegacyKey]]] = ()) -> None:
        """Report that a pod stays as it is because of one key, and that its other keys stay too."""
        cause = left.causes[0]
        self._decide("", "", cause, Outcome.LEFT, left.text)
        for slot, legacy_keys in slots:
            for legacy_key in legacy_keys:
                if legacy_key.key != cause:
                    self._decide(slot.name, "", legacy_key.key, Outcome.LEFT, f"same reason as {cause}")
        self._warn(f"{_subject('')}{cause}: left as it is: {left.text}")

    def refuse(self, container: str, dialect: str, refusal: Reason) -> None:
        [cause], code, remedy = refusal.causes, refusal.code, refusal.remedy
        self._decide(container, dialect, cause, Outcome.REFUSED, refusal.text, code=code, remedy=remedy)
        self.refusals.append(stated(code, f"{_subject(container)}{cause}: {refusal.text}", remedy))

    def add_misread(self, key: str, detail: str) -> None:
        self._not_understood("", key, detail, "D211")
        self._warn(f"{key}: {detail}")

    def add_returned_key(self, container: str, key: str, now: Json, before: Json) -> None:
        """Report a key that another webhook put back: the same amount is removed again, a different amount is refused."""
        if equal(now, before):
            self._decide(container, "", key, Outcome.TRANSLATED, "was put back by another webhook and is removed again")
            return
        reason = f"was translated as {before} and is requested again as {now}: another webhook adds it"
        self.refuse(container, "", refuse(key, reason, "disable that webhook for this pod", Code.TWICE))

    def _not_understood(self, container: str, key: str, detail: str, code: str) -> None:
        decision = Decision(self.object_name, container, "", key, Outcome.UNKNOWN, detail, code=code)
        if decision not in self.decisions:
            self.decisions.append(decision)

    def _decide(self, container: str, dialect: str, key: str, outcome: Outcome, detail: str, **more: Any) -> None:
        self.decisions.append(Decision(self.object_name, container, dialect, key, outcome, detail, **more))

    def _warn_of_loss(self, subject: str, detail: str, *, is_dropped: bool = False) -> None:
        """Warn of an approximation. With `approximations: leave`, only keys that no claim expresses can be on a translated container."""
        if self._approximations == "warn" or (is_dropped and self._approximations == "leave"):
            self._warn(f"{subject}: approximated: {detail}")

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


def _subject(container: str) -> str:
    return f"container {container}: " if container else "pod: "
