"""Writes the list of workload kinds in docs/translation.md from the table that translation uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.translate.workload_kind import KINDS, RENDERED, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def item_list() -> str:
    """List the kinds by what translation does with their pod templates."""
    left: list[str] = []
    rewritten: list[str] = []
    for (group, entry), kinds in by_group(KINDS).items():
        names = ", ".join(kinds)
        if entry.reads or entry.drops:
            left.append(group)
        else:
            rewritten.append(f"{names} ({group}{remarks(entry)})")
    values = ", ".join(f"{', '.join(kinds)} ({group})" for (group, _), kinds in by_group(RENDERED).items())
    return "\n".join(
        [
            f"- **Rewritten**, if the release is recent enough for its CustomResourceDefinition to have fields for claims: {', '.join(rewritten)}.",
            f"- **Left to the webhook**: other known kinds of {', '.join(dict.fromkeys(left))}.",
            f"- **Values for charts and similar**: {values}. Limits and requests in values of charts are judged like those of a pod; other keys are reported.",
        ]
    )


def by_group(kinds: Mapping[tuple[str, str], WorkloadKind]) -> Mapping[tuple[str, WorkloadKind], list[str]]:
    """Group the kinds of an API group for which the table has the same entry, in the order of the API groups."""
    groups: dict[tuple[str, WorkloadKind], list[str]] = {}
    for (group, kind), entry in sorted(kinds.items(), key=lambda item: item[0][0]):
        groups.setdefault((group, entry), []).append(kind)
    return groups


def remarks(entry: WorkloadKind) -> str:
    release = f", since {entry.published.since}" if entry.published.since else ""
    scheduler = f", scheduler {entry.scheduler}" if entry.scheduler else ""
    note = f"; {entry.note}" if entry.note else ""
    return f"{release}{scheduler}{note}"
