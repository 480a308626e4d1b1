"""What a process says of itself at /readyz: what keeps it from its work, and, when asked, what is only worth knowing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.serving.connection import Reply, text

if TYPE_CHECKING:
    from collections.abc import Mapping


def readiness(problems: Mapping[str, str], notes: Mapping[str, str], *, verbose: bool) -> Reply:
    """Answer with one line a check; an empty reason is fine, and a note takes nobody off a Service."""
    lines: list[str] = []
    for name, problem in problems.items():
        line = f"[-]{name}: {problem}" if problem else f"[+]{name} ok"
        lines.append(line)
    if verbose:
        lines += [f"[!]{name}: {note}" for name, note in notes.items() if note]
    status = 503 if any(problems.values()) else 200
    return text(status, "\n".join(lines) + "\n")
