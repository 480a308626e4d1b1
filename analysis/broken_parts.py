"""Finds the finding about a component of drawbridge that explains why something waits for the component. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding

# The objects of findings about each part.
WEBHOOK = re.compile(r"(?:^MutatingWebhookConfiguration/|(?:Secret|Service|ConfigMap)/.*/)drawbridge$|drawbridge-(?:webhook|authority)\b")  # fmt: skip
TEMPLATES = re.compile(r"(?:Lease|ConfigMap)/.*/drawbridge$|drawbridge-(?:controller|signature)\b")
BRIDGE = re.compile(r"drawbridge-(?:allocator|scheduler)\b")
DRIVER = re.compile(r"^DaemonSet/.*drawbridge-driver$")
_GOES_ON = ("O011", "O010", "O013")  # with these findings a component still works


def find_cause(part: re.Pattern[str], findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding that stops a component; None if there is none."""
    return next((finding for finding in findings if part.search(finding.object) and finding.code not in _GOES_ON), None)
