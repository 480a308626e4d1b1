"""Why no node can serve a pod, and whether it is refused for that or its author is warned. Pure."""

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
    """What may serve all the same what is impossible now."""

    PLUGIN = auto()  # a device plugin
    NEW_NODE = auto()  # another node, if one is made
    UNREACHED = auto()  # a node that the pod cannot run on
    DRIVER = auto()  # a node that the pod can run on, whose driver may only be starting


class Found(msgspec.Struct, frozen=True):
    """Why no node can serve a pod, as decisions that refuse it or only warn; and the warnings."""

    decisions: tuple[Decision, ...] = ()
    warnings: tuple[Warned, ...] = ()
    # What may serve a refused pod all the same; and why it waits, whatever else is known.
    may_serve: MayServe = MayServe(0)
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
    """Warn instead of refusing where not all is known, an autoscaler may make a node, or the configuration says so."""
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
