"""Which part of drawbridge a pod waits for, where something is wrong with that part. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.explain.stories import Keeper
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.explain.stories import PodStory
    from dra.finding import Finding

# What the findings about each part are called.
_PARTS = {
    Keeper.WEBHOOK: re.compile(r"(?:^MutatingWebhookConfiguration/|(?:Secret|Service|ConfigMap)/.*/)drawbridge$|drawbridge-(?:webhook|authority)\b"),
    Keeper.TEMPLATES: re.compile(r"(?:Lease|ConfigMap)/.*/drawbridge$|drawbridge-(?:controller|signature)\b"),
    Keeper.BRIDGE: re.compile(r"drawbridge-(?:allocator|scheduler)\b"),
    Keeper.DRIVER: re.compile(r"^DaemonSet/.*drawbridge-driver$"),
}  # fmt: skip

_GOES_ON = ("O011", "O010", "O013")  # with these a part works, if not as well


def keeper_of(story: PodStory) -> Keeper:
    """Say which part of drawbridge acts next for a pod, if any does."""
    keeper = story.next_step.keeper
    if keeper is Keeper.USER and not story.claims:
        changed = any(
            decision.outcome in (Outcome.TRANSLATED, Outcome.APPROXIMATED) for decision in story.webhook.decisions
        )
        return Keeper.WEBHOOK if story.webhook.foretold and changed else Keeper.NONE
    return keeper if keeper in _PARTS else Keeper.NONE


def with_cause(story: PodStory, findings: Iterable[Finding]) -> PodStory:
    """Put before where a pod stands what is wrong with the part that it waits for, with the remedy."""
    part = _PARTS.get(keeper_of(story))
    finding = next(
        (finding for finding in findings if part and part.search(finding.object) and finding.code not in _GOES_ON), None
    )
    if finding is None:
        return story
    message = f"{finding.object}: {finding.message} ({finding.remedy}); {story.next_step.message}"
    return replace(story, next_step=replace(story.next_step, message=message))
