"""Writes the lists of keys in docs/keys.md from the tables of keys that the webhook reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from webhook.dialects import VOCABULARIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.dialects import Dialect, Row


def item_list() -> str:
    """List the keys of every system. Keys with the same outcome for the same reason share an item; the last item has the left keys."""
    return "\n\n".join(section(vocabulary.table) for vocabulary in VOCABULARIES)


def section(dialect: Dialect) -> str:
    groups: dict[tuple[str, ...], list[Row]] = {}
    left = [row for row in dialect.keys if row.outcome == "left"]
    for row in dialect.keys:
        if row in left:
            continue
        own_group = () if row.because else (row.name,)
        groups.setdefault((row.outcome, row.place, row.unit, reason_of(row), *own_group), []).append(row)
    scope = ["Numbers count for the whole pod.", ""] if dialect.scope == "pod" else []
    title = f"### {capitalized(dialect.title)} ({dialect.name})"
    left_names = ", ".join(dict.fromkeys(f"`{row.name}`" for row in left))
    return "\n".join(
        [
            title,
            "",
            *scope,
            *(item(rows) for rows in groups.values()),
            *[f"- Not translated: {left_names}"] * bool(left),
        ]
    )


def item(rows: Sequence[Row]) -> str:
    """Return an item: keys, and, unless they have the page's default, their place and unit; then outcome, meaning and reason."""
    first = rows[0]
    qualifiers = [first.place] * (first.place != "resource") + [first.unit] * (first.unit != "count")
    qualifier_text = f" ({', '.join(qualifiers)})" if qualifiers else ""
    reason = f". {capitalized(reason_of(first))}" if first.because else ""
    if len(rows) == 1:
        return f"- `{first.name}`{qualifier_text}: {first.outcome}. {capitalized(first.meaning)}{reason}"
    return f"- {'; '.join(keys_with_meaning(rows))}{qualifier_text}: {first.outcome}{reason}"


def reason_of(row: Row) -> str:
    """Return the reason without the name of the device, so that devices for which no driver is known share an item."""
    return re.sub(r"(no DRA driver for) an? .+? (is known)", r"\1 it \2", row.because)


def keys_with_meaning(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the keys of each meaning, with the meaning."""
    meanings: dict[str, list[str]] = {}
    for row in rows:
        meanings.setdefault(row.meaning, []).append(f"`{row.name}`")
    for meaning, names in meanings.items():
        yield f"{', '.join(names)} = {meaning}"


def capitalized(text: str) -> str:
    """Begin a text with a capital letter, unless its first word is a key or path (with a slash)."""
    return text if "/" in text.partition(" ")[0] else text[0].upper() + text[1:]
