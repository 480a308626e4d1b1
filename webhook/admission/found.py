"""The reasons why no node can serve a pod, and whether they refuse the pod or warn. Pure."""

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
    from webhook.state import State


class MayServe(Flag):
    """What may serve a pod later that no node can serve now."""

    PLUGIN = auto()  # a device plugin
    NEW_NODE = auto()  # a node that an autoscaler creates
    UNREACHED = auto()  # a node that the pod cannot run on
    DRIVER = auto()  # a node that the pod can run on, whose driver may only be starting


class Found(msgspec.Struct, frozen=True):
    """Why no node can serve a pod: decisions that refuse it or only doubt, and warnings."""

    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Warned, ...] = ()
    # What may serve a refused pod later.
    may_serve: MayServe = MayServe(0)
    # Why the pod waits instead of being refused; "" if there is no such reason.
    waits: str = ""

    @property
    def denials(self) -> tuple[Finding, ...]:
        if not self.decisions:
            return ()
        refused = [decision for decision in self.decisions if decision.outcome is Outcome.REFUSED]
        return tuple([stated(one.code, one.detail, one.remedy) for one in refused])


NOTHING_FOUND = Found()


def denied(denial: Finding, container: str, key: str, may_serve: MayServe) -> Found:
    decision = Decision("", container, "", key, Outcome.REFUSED, denial.message, code=denial.code, remedy=denial.remedy)
    return Found((decision,), may_serve=may_serve)


def deny_or_warn(found: Found, state: State) -> Found:
    """Turn refusals into warnings if objects are unreadable, the pod waits, an autoscaler may create a node, or the configuration requires it."""
    if not found.denials:
        return found
    file = state.configuration.file
    may_come = MayServe.NEW_NODE in found.may_serve and not file.node_templates
    if state.unseen:
        unseen = f"some {' and '.join(f'{kind} objects' for kind in state.unseen)} could not be read"
        opening = f"this may never work, but {unseen}: "
    elif found.waits:
        opening = f"{found.waits}: "
    elif file.impossible == "warn":
        opening = "this can never work: "
    elif file.impossible == "auto" and state.fleet.grows and may_come:
        opening = f"this may never work, but an autoscaler may make another node ({state.fleet.grows}): "
    else:
        return found
    warnings = [denial.prefixed(opening) for denial in found.denials]
    doubts = [replace(decision, outcome=Outcome.LEFT, detail=opening + decision.detail) for decision in found.decisions]
    return Found(tuple(doubts), (*warnings, *found.warnings))
