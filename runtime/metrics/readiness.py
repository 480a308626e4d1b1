"""What a process says of itself at /readyz: what keeps it from its work, and, when asked, what is only worth knowing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runtime.http import Reply, text

if TYPE_CHECKING:
    from collections.abc import Mapping


def readiness(problems: Mapping[str, str], notes: Mapping[str, str], *, verbose: bool) -> Reply:
    """Answer with one line a check; an empty reason is fine, and a note takes nobody off a Service."""
    lines: list[str] = []
    status = 200
    for name, problem in problems.items():
        if problem:
            status = 503
            lines.append(f"[-]{name}: {problem}")
        else:
            lines.append(f"[+]{name} ok")
    if verbose:
        lines += [f"[!]{name}: {note}" for name, note in notes.items() if note]
    body = "\n".join(lines)
    return text(status, f"{body}\n")
