"""Writes the list of workload kinds in docs/translation.md from the table that translation uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.translate.workload_kind import KINDS, RENDERED, WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def listed() -> str:
    """List the kinds by what becomes of their templates."""
    fates: dict[str, list[str]] = {}
    for (group, known), kinds in by_group(KINDS).items():
        if known.reads or known.drops:
            fates.setdefault(left(known), []).append(f"{', '.join(kinds)} ({group})")
        else:
            fates.setdefault("", []).append(f"{', '.join(kinds)} ({group}{since(known)})")
    rewritten = fates.pop("")
    values = ", ".join(f"{', '.join(kinds)} ({group})" for (group, _), kinds in by_group(RENDERED).items())
    return "\n".join(
        [
            f"- **Rewritten**, from the release whose definition keeps claims: {', '.join(rewritten)}.",
            "- **Left to the webhook**, because this program reads the keys, or the definition drops claims:",
            *(f"  - {', '.join(names)}: {fate}" for fate, names in fates.items()),
            f"- **Values of what another tool renders**, whose keys are named and not checked: {values}.",
        ]
    )


def by_group(kinds: Mapping[tuple[str, str], WorkloadKind]) -> Mapping[tuple[str, WorkloadKind], list[str]]:
    """Put the kinds of one API group with the same fate together, in the order of their groups."""
    groups: dict[tuple[str, WorkloadKind], list[str]] = {}
    for (group, kind), known in sorted(kinds.items(), key=lambda entry: entry[0][0]):
        groups.setdefault((group, known), []).append(kind)
    return groups


def left(known: WorkloadKind) -> str:
    """Return why a template keeps its keys, and what else a user has to know."""
    if known.reads:
        note = f"; {known.note}" if known.note else ""
        return f"{known.reads}{note}"
    kept = f" (kept since {known.published.since})" if known.published.since else ""
    return f"the definition in {', '.join(known.drops)} drops claims{kept}"


def since(known: WorkloadKind) -> str:
    release = f", since {known.published.since}" if known.published.since else ""
    scheduler = f", scheduler {known.scheduler}" if known.scheduler else ""
    note = f"; {known.note}" if known.note else ""
    return f"{release}{scheduler}{note}"
