"""The verdict on a pod, or on the pods of an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from dra.finding import Finding, stated
from dra.wire import Json
from webhook.dialects import REPLACED, Outcome
from webhook.refusals import INVALID, Warned
from webhook.translate.pod_report import Decision
from webhook.translate.rewrite import Operation, PodClaim


class PodVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of each key, the operations on the object, and the reasons of its refusal.

    `translate` creates it from the keys. `webhook.admission.decide` adds whether a node can serve the pod, and applies the mode.
    """

    decisions: tuple[Decision, ...] = ()
    operations: tuple[Operation, ...] = ()
    # Operations that mode `warn` applies too. They remove forged annotations of drawbridge, and keys that an update brings back. If no key is
    # translated, `operations` has only these.
    cleaning: tuple[Operation, ...] = ()
    # Specs of ResourceClaimTemplates, by name.
    templates: Mapping[str, Json] = {}
    # Claims that the webhook puts on the pod, now or in an earlier round.
    added_claims: tuple[PodClaim, ...] = ()
    # Whether some of these claims are for CPUs. If no node can serve all claims, the pod is translated again without claims for CPUs.
    claims_cpus: bool = False
    refusals: tuple[Finding, ...] = ()
    # Warnings that the pod has to wait or was not checked. The log records these warnings as problems.
    problem_warnings: tuple[Warned, ...] = ()
    # Further warnings.
    notes: tuple[Warned, ...] = ()
    # The nodes of a mixed fleet that serve the pod, with the reason.
    served_by: str = ""
    # Why the template stays as it is, although the webhook translates its pods.
    stays: str = ""
    # Whether the budget ended before the decision was complete.
    is_undecided: bool = False
    # Whether the time ended before the reasons were complete, so that another attempt may find more.
    is_late: bool = False

    @property
    def warnings(self) -> tuple[Warned, ...]:
        return (*self.problem_warnings, *self.notes) if self.problem_warnings else self.notes

    @property
    def problems(self) -> tuple[Warned, ...]:
        return (*self.refusals, *self.problem_warnings)

    @property
    def changed(self) -> bool:
        """Return whether the operations do more than `cleaning`: claims replace keys of the pod."""
        return bool(self.operations) and self.operations != self.cleaning

    @property
    def is_invalid(self) -> bool:
        """Return whether the API server would refuse the object for the same reasons."""
        return INVALID.issuperset([refusal.code for refusal in self.refusals])

    def refuse(self, decisions: Iterable[Decision]) -> PodVerdict:
        """Return the verdict that refuses the object for these decisions and changes nothing; this verdict if there are none.

        A refused key is not served, too.
        """
        decisions = tuple(decisions)
        if not decisions:
            return self
        places = {decision.place for decision in decisions}
        earlier = [
            decision
            for decision in self.decisions
            if decision.outcome is not Outcome.SERVED or decision.place not in places
        ]
        refusals = tuple([stated(decision.code, decision.detail, decision.remedy) for decision in decisions])
        return replace(
            self,
            decisions=(*earlier, *decisions),
            refusals=(*self.refusals, *refusals),
            operations=(),
            templates={},
            added_claims=(),
        )

    def with_doubts(self, doubts: Iterable[Decision]) -> PodVerdict:
        """Add the code and the reason of each doubt to the decision about its key; the outcome of the key stays."""
        decisions = list(self.decisions)
        for doubt in doubts:
            outcome = doubt.outcome
            for index, decision in enumerate(decisions):
                if decision.place != doubt.place:
                    continue
                outcome = decision.outcome
                if not decision.code:
                    detail = "; ".join(filter(None, (decision.detail, doubt.detail)))
                    decisions[index] = replace(decision, code=doubt.code, remedy=doubt.remedy, detail=detail)
                    break
            else:
                decisions.append(replace(doubt, outcome=outcome))
        return replace(self, decisions=tuple(decisions))

    def leave(self, reason: str, warnings: Iterable[Warned]) -> PodVerdict:
        """Return the verdict that leaves the pods unchanged, because a device plugin serves them."""
        changes = {"outcome": Outcome.LEFT, "detail": reason}
        decisions = [
            replace(decision, **changes) if decision.outcome in REPLACED else decision for decision in self.decisions
        ]
        return PodVerdict(
            decisions=tuple(decisions),
            operations=self.cleaning,
            cleaning=self.cleaning,
            problem_warnings=tuple(warnings),
        )


NOTHING: Final = PodVerdict()


def merge(parts: Iterable[PodVerdict]) -> PodVerdict:
    """Merge the verdicts on an object's templates: if one is refused, none is translated."""
    verdicts = tuple(parts)
    if len(verdicts) < 2:
        return verdicts[0] if verdicts else NOTHING
    templates: dict[str, Json] = {}
    for verdict in verdicts:
        templates |= verdict.templates
    refusals = tuple([refusal for verdict in verdicts for refusal in verdict.refusals])
    return PodVerdict(
        decisions=tuple([decision for verdict in verdicts for decision in verdict.decisions]),
        operations=() if refusals else tuple([operation for verdict in verdicts for operation in verdict.operations]),
        templates={} if refusals else templates,
        refusals=refusals,
        problem_warnings=tuple(
            dict.fromkeys([warning for verdict in verdicts for warning in verdict.problem_warnings])
        ),
        notes=tuple(dict.fromkeys([warning for verdict in verdicts for warning in verdict.notes])),
        is_undecided=any(verdict.is_undecided for verdict in verdicts),
        is_late=any(verdict.is_late for verdict in verdicts),
    )
