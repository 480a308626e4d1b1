"""The reasons why no node can serve a pod, and whether these refuse the pod or become warnings."""

from __future__ import annotations

from enum import Flag, auto
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.finding import Finding, stated
from webhook.dialects import Outcome
from webhook.refusals import Warned
from webhook.translate import Decision

if TYPE_CHECKING:
    from dra.reason import Reason
    from webhook.state import State


class MayServe(Flag):
    """What may later serve a pod that no node can serve now."""

    PLUGIN = auto()  # a device plugin
    NEW_NODE = auto()  # a node that an autoscaler creates
    UNREACHED = auto()  # a node that the pod cannot run on
    DRIVER = auto()  # a node that the pod can run on, whose driver may only be starting


class Problems(msgspec.Struct, frozen=True):
    """Why no node can serve a pod: decisions, which refuse the pod or only record a doubt, and warnings."""

    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Warned, ...] = ()
    # What may serve a refused pod later.
    may_serve: MayServe = MayServe(0)
    # Why the pod waits instead of being refused; "" if there is no such reason.
    waits_because: str = ""

    @property
    def denials(self) -> tuple[Finding, ...]:
        if not self.decisions:
            return ()
        refused = [decision for decision in self.decisions if decision.outcome is Outcome.REFUSED]
        return tuple([stated(decision.code, decision.detail, decision.remedy) for decision in refused])

    def followed_by(self, later: Problems) -> Problems:
        """Return these problems and the warnings of `later`; if these problems refuse nothing, also the refusals of `later`."""
        if not later.decisions and not later.warnings:
            return self
        return replace(self, decisions=self.decisions or later.decisions, warnings=(*self.warnings, *later.warnings))


NO_PROBLEMS = Problems()


def denied(reason: Reason, container: str, key: str, may_serve: MayServe) -> Problems:
    decision = Decision("", container, "", key, Outcome.REFUSED, reason.text, code=reason.code, remedy=reason.remedy)
    return Problems((decision,), may_serve=may_serve)


def deny_or_warn(problems: Problems, state: State) -> Problems:
    """Turn refusals into warnings if objects are unreadable, the pod can wait, an autoscaler may create a node, or the configuration says so."""
    if not problems.denials:
        return problems
    file = state.configuration.file
    new_node_possible = MayServe.NEW_NODE in problems.may_serve and not file.node_templates
    if state.unseen:
        unseen = f"some {' and '.join(f'{kind} objects' for kind in state.unseen)} could not be read"
        opening = f"this may never work, but {unseen}: "
    elif problems.waits_because:
        opening = f"{problems.waits_because}: "
    elif file.impossible == "warn":
        opening = "this can never work: "
    elif file.impossible == "auto" and state.fleet.grows and new_node_possible:
        opening = f"this may never work, but an autoscaler may create another node ({state.fleet.grows}): "
    else:
        return problems
    warnings = [denial.prefixed(opening) for denial in problems.denials]
    doubts = [
        replace(decision, outcome=Outcome.LEFT, detail=opening + decision.detail) for decision in problems.decisions
    ]
    return Problems(tuple(doubts), (*warnings, *problems.warnings))
