"""Writes the list of workload kinds in docs/translation.md from the table that translation uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.translate.workload_kind import KINDS, RENDERED, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def listed() -> str:
    """List the kinds by what translation does with their pod templates."""
    left: list[str] = []
    rewritten: list[str] = []
    for (group, known), kinds in by_group(KINDS).items():
        names = ", ".join(kinds)
        if known.reads or known.drops:
            left.append(group)
        else:
            rewritten.append(f"{names} ({group}{since(known)})")
    values = ", ".join(f"{', '.join(kinds)} ({group})" for (group, _), kinds in by_group(RENDERED).items())
    return "\n".join(
        [
            f"- **Rewritten**, from the release on whose CustomResourceDefinition keeps claims: {', '.join(rewritten)}.",
            f"- **Left to the webhook**: other known kinds of {', '.join(dict.fromkeys(left))}.",
            f"- **Values for charts and similar**, whose keys are reported but not checked: {values}.",
        ]
    )


def by_group(kinds: Mapping[tuple[str, str], WorkloadKind]) -> Mapping[tuple[str, WorkloadKind], list[str]]:
    """Group the kinds of an API group for which the table has the same entry, in the order of the API groups."""
    groups: dict[tuple[str, WorkloadKind], list[str]] = {}
    for (group, kind), known in sorted(kinds.items(), key=lambda entry: entry[0][0]):
        groups.setdefault((group, known), []).append(kind)
    return groups


def since(known: WorkloadKind) -> str:
    release = f", since {known.published.since}" if known.published.since else ""
    scheduler = f", scheduler {known.scheduler}" if known.scheduler else ""
    note = f"; {known.note}" if known.note else ""
    return f"{release}{scheduler}{note}"
