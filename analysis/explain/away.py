"""Finds the component of drawbridge that a pod waits for, if something is wrong with that component."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis import broken_parts
from dra.reason import Actor, Reason
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.explain.stories import PodStory
    from dra.finding import Finding

_PARTS = {
    Actor.WEBHOOK: broken_parts.WEBHOOK,
    Actor.TEMPLATES: broken_parts.TEMPLATES,
    Actor.BRIDGE: broken_parts.BRIDGE,
    Actor.DRIVER: broken_parts.DRIVER,
}


def actor_of(story: PodStory) -> Actor:
    """Return the component of `_PARTS` that a pod waits for; NONE if it waits for something else."""
    actor = story.state.reasons[0].actor
    if actor is Actor.USER and not story.claims:
        changed = any(
            decision.outcome in (Outcome.TRANSLATED, Outcome.APPROXIMATED) for decision in story.webhook.decisions
        )
        return Actor.WEBHOOK if story.webhook.predicted and changed else Actor.NONE
    return actor if actor in _PARTS else Actor.NONE


def with_cause(story: PodStory, findings: Iterable[Finding]) -> PodStory:
    """Put the finding about the component that a pod waits for, with its remedy, before the pod's other reasons."""
    part = _PARTS.get(actor_of(story))
    finding = broken_parts.find_cause(part, findings) if part is not None else None
    if finding is None:
        return story
    cause = Reason(
        actor=actor_of(story),
        text=f"{finding.object}: {finding.message}",
        code=finding.code,
        causes=(finding.object,),
        remedies=(finding.remedy,),
    )
    return replace(story, state=replace(story.state, reasons=(cause, *story.state.reasons)))
