"""Returns the finding that explains why a component of drawbridge does not work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.finding import Finding

# For each component, a pattern of the objects that the findings about the component name.
WEBHOOK = re.compile(r"(?:^MutatingWebhookConfiguration/|(?:Secret|Service|ConfigMap)/.*/)drawbridge$|drawbridge-(?:webhook|authority)\b")  # fmt: skip
TEMPLATES = re.compile(r"(?:Lease|ConfigMap)/.*/drawbridge$|drawbridge-(?:controller|signature)\b")
BRIDGE = re.compile(r"drawbridge-(?:allocator|scheduler)\b")
DRIVER = re.compile(r"^DaemonSet/.*drawbridge-driver$")
_STILL_WORKS = ("O011", "O010", "O013")  # a component with one of these findings still works


def find_cause(component: re.Pattern[str], findings: Iterable[Finding]) -> Finding | None:
    """Return the first finding because of which a component does not work; None if there is none."""
    return next(
        (finding for finding in findings if component.search(finding.object) and finding.code not in _STILL_WORKS), None
    )
