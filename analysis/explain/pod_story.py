"""Builds the story of a pod: its requests, the decisions about them, its devices, and why it does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.decisions import Outlook
from analysis.broken_parts import find_cause
from analysis.explain.claim_story import FALSE, condition_text
from analysis.explain.stories import PodState, PodStory, Step
from analysis.explain.webhook_record import decide_now
from analysis.explain.why import REFUSING, facts_of, refusal_of, why_not_running
from analysis.loading import inside, text
from analysis.prospects import STOCK, quota_of
from dra.objects import Pod
from dra.reason import Actor, Reason
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.loading import Object, Reading
    from dra.finding import Finding


def pod_story(key: str, reading: Reading) -> PodStory:
    """Return the story of one pod, by namespace/name."""
    if key not in reading.pods:
        return _undecoded_story(key, reading)
    facts = facts_of(key, reading)
    state = why_not_running(facts)
    pod, prospect, room_on = facts.pod, facts.prospect, ""
    if state.step in (Step.ALLOCATED, Step.SCHEDULED) and not facts.node:
        room_on = facts.outcome.node or ""
    if prospect is not None and room_on and prospect.outlook in REFUSING:
        prospect = replace(prospect, outlook=Outlook.FITS, reason=Reason(text=""), way_out=None)
    if prospect is not None and prospect.way_out is not None and prospect.way_out.text != state.reasons[0].text:
        # Another step comes first, so removing the obstacles is not enough.
        prospect = replace(prospect, way_out=prospect.way_out.without_remedies())
    # Conditions with status False, with the messages of the scheduler and the kubelet.
    conditions: list[str] = []
    for condition in pod.status.conditions:
        if condition.status == FALSE and (condition.message or condition.reason):
            since = f" since {condition.last_transition_time}" if condition.last_transition_time else ""
            conditions.append(f"{condition_text(condition)}{since}")
    raw = reading.raw.get(key)
    return PodStory(
        name=key,
        state=state,
        # A pod that an API server has seen is Pending at least.
        phase=pod.status.phase or ("Pending" if facts.is_stored else ""),
        node=facts.node,
        scheduler=facts.scheduler,
        owners=reading.owners(raw) if raw is not None else (),
        webhook=facts.webhook,
        claims=facts.claims,
        conditions=tuple(conditions),
        prospect=prospect,
        room_on=room_on,
        quota=quota_of(pod, prospect, reading),
    )


def with_cause(story: PodStory, findings: Iterable[Finding]) -> PodStory:
    """Put the finding about the component that a pod waits for before the pod's other reasons."""
    reasons = story.state.reasons
    finding = find_cause(reasons[0], findings)
    if finding is None:
        return story
    text, remedies = f"{finding.object}: {finding.message}", (finding.remedy,)
    cause = replace(reasons[0], text=text, code=finding.code, causes=(finding.object,), remedies=remedies)
    return replace(story, state=replace(story.state, reasons=(cause, *reasons)))


def _undecoded_story(key: str, reading: Reading) -> PodStory:
    """Return the story of a pod that cannot be decoded, for instance because an amount is a placeholder.

    It has only the webhook's decision.
    """
    raw = reading.raw[key]
    webhook = decide_now(raw, reading)
    reason = Reason(actor=Actor.USER, text=f"it cannot be read: {_why_undecoded(raw)}", never=True)
    if webhook.refusals:
        reason = refusal_of(webhook.refusals)
    return PodStory(
        name=key,
        state=PodState(step=Step.ADMITTED, reasons=(reason,)),
        phase="",
        node="",
        scheduler=text(inside(raw, "spec").get("schedulerName")) or STOCK,
        owners=reading.owners(raw),
        webhook=webhook,
        claims=(),
        conditions=(),
        prospect=None,
        quota=(),
    )


def _why_undecoded(raw: Object) -> str:
    try:
        convert(raw, Pod)
    except WireError as error:
        return str(error)
    return ""
