"""Writes the lists of keys in docs/keys.md from the tables of keys that the webhook reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from webhook.dialects import VOCABULARIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.dialects import Dialect, Row


def listed() -> str:
    """List the keys of every system. Keys with the same outcome for the same reason share an item; the last item has the left keys."""
    return "\n\n".join(section(vocabulary.table) for vocabulary in VOCABULARIES)


def section(dialect: Dialect) -> str:
    groups: dict[tuple[str, ...], list[Row]] = {}
    left = [row for row in dialect.keys if row.outcome == "left"]
    for row in dialect.keys:
        if row in left:
            continue
        apart = () if row.because else (row.name,)
        groups.setdefault((row.outcome, row.place, row.unit, because(row), *apart), []).append(row)
    scope = ["Numbers count for the whole pod.", ""] if dialect.scope == "pod" else []
    title = f"### {sentence(dialect.title)} ({dialect.name})"
    names = ", ".join(dict.fromkeys(f"`{row.name}`" for row in left))
    return "\n".join([title, "", *scope, *(item(rows) for rows in groups.values()), *[f"- Left: {names}"] * bool(left)])


def item(rows: Sequence[Row]) -> str:
    """Return an item: keys, and, unless they have the page's default, their place and unit; then outcome, meaning and reason."""
    first = rows[0]
    kind = [first.place] * (first.place != "resource") + [first.unit] * (first.unit != "count")
    what = f" ({', '.join(kind)})" if kind else ""
    reason = f". {sentence(because(first))}" if first.because else ""
    if len(rows) == 1:
        return f"- `{first.name}`{what}: {first.outcome}. {sentence(first.meaning)}{reason}"
    return f"- {'; '.join(described(rows))}{what}: {first.outcome}{reason}"


def because(row: Row) -> str:
    """Return the reason without the name of the device, so that devices for which no driver is known share an item."""
    return re.sub(r"(no DRA driver for) an? .+? (is known)", r"\1 it \2", row.because)


def described(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the keys of each meaning, with the meaning."""
    meanings: dict[str, list[str]] = {}
    for row in rows:
        meanings.setdefault(row.meaning, []).append(f"`{row.name}`")
    for meaning, names in meanings.items():
        yield f"{', '.join(names)} = {meaning}"


def sentence(text: str) -> str:
    """Begin a text with a capital letter, unless its first word is a key or path (with a slash)."""
    return text if "/" in text.partition(" ")[0] else text[0].upper() + text[1:]
