"""From problems to findings: the object named, severity and advice added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dra.finding import Finding
from dra.validation.codes import CODES
from dra.validation.fields import gates
from dra.validation.objects.judge import problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.validation.problem import Problem


def findings(found: Iterable[Problem], reference: str) -> list[Finding]:
    """Make findings of problems: the object named, severity and general advice from the table of codes."""
    return [
        Finding(
            code=problem.code,
            severity=CODES[problem.code].severity,
            object=reference,
            path=problem.path,
            message=problem.message,
            hint=problem.hint or CODES[problem.code].hint,
        )
        for problem in found
    ]


def errors(value: dict[str, Any], enabled: gates.Gates = gates.DEFAULT) -> list[Problem]:
    """Find why the API server would refuse an object; nothing if it would take it."""
    return [problem for problem in problems(value, enabled) if CODES[problem.code].severity == "error"]
