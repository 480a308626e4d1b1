"""Finds the fault of the component of drawbridge that a pod waits for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dra.reason import Actor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding
    from dra.reason import Reason

# For each component, a pattern of the objects that the findings about the component name.
_PARTS = {
    Actor.WEBHOOK: re.compile(r"(?:^MutatingWebhookConfiguration/|(?:Secret|Service|ConfigMap)/.*/)drawbridge$|drawbridge-(?:webhook|authority)\b"),
    Actor.TEMPLATES: re.compile(r"(?:Lease|ConfigMap)/.*/drawbridge$|drawbridge-(?:controller|signature)\b"),
    Actor.BRIDGE: re.compile(r"drawbridge-(?:allocator|scheduler)\b"),
    Actor.DRIVER: re.compile(r"^DaemonSet/.*drawbridge-driver$"),
}  # fmt: skip
_STILL_WORKS = ("O011", "O010", "O013")  # a component with one of these findings still works
_MISSED = "O103"  # the webhook missed the pod


def waits_for_component(reason: Reason) -> bool:
    """Return whether a pod waits for a component of drawbridge, or for its author because the webhook missed the pod."""
    return reason.code == _MISSED or reason.actor in _PARTS


def find_cause(reason: Reason, findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding because of which the component of a reason does not work; None if there is none."""
    part = _PARTS.get(Actor.WEBHOOK if reason.code == _MISSED else reason.actor)
    if part is None:
        return None
    return next((found for found in findings if part.search(found.object) and found.code not in _STILL_WORKS), None)
