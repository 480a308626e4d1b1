"""Which part of drawbridge a pod waits for, where something is wrong with that part. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cli.explain.stories import Keeper
from webhook.dialects import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.doctor import Ailment
    from cli.explain.stories import PodStory

# What the findings about each part are called.
_PARTS = {
    Keeper.WEBHOOK: re.compile(r"(?:^MutatingWebhookConfiguration |(?:Secret|Service|ConfigMap) .*/)drawbridge$|drawbridge-(?:webhook|authority)\b"),
    Keeper.TEMPLATES: re.compile(r"(?:Lease|ConfigMap) .*/drawbridge$|drawbridge-(?:controller|seal)\b"),
    Keeper.BRIDGE: re.compile(r"drawbridge-(?:allocator|scheduler)\b"),
    Keeper.DRIVER: re.compile(r"^DaemonSet .*drawbridge-driver$"),
}  # fmt: skip

_GOES_ON = ("several versions", "not ready", "clock")  # with these a part works, if not as well


def keeper_of(told: PodStory) -> Keeper:
    """Say which part of drawbridge acts next for a pod, if any does."""
    standing = told.standing.keeper
    if standing is Keeper.USER and not told.claims:
        changed = any(one.action in (Action.TRANSLATED, Action.APPROXIMATED) for one in told.webhook.decisions)
        return Keeper.WEBHOOK if told.webhook.foretold and changed else Keeper.NONE
    return standing if standing in _PARTS else Keeper.NONE


def with_cause(told: PodStory, ailments: Iterable[Ailment]) -> PodStory:
    """Put before where a pod stands what is wrong with the part that it waits for, with the remedy."""
    part = _PARTS.get(keeper_of(told))
    one = next((one for one in ailments if part and part.search(one.object) and one.what not in _GOES_ON), None)
    if one is None:
        return told
    message = f"{one.object}: {one.message} ({one.remedy}); {told.standing.message}"
    return replace(told, standing=replace(told.standing, message=message))
