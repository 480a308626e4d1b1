"""Lists and counts for sentences."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def list_first(names: Collection[str], limit: int, separator: str = ", ") -> str:
    """Return the first `limit` names as a text, with the number of further names: a, b and 3 more."""
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return separator.join(islice(names, limit)) + remainder


def count_of(number: int, noun: str) -> str:
    """Write a number with its noun: 1 pod, 2,000 pods."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def joined(*parts: str) -> str:
    """Join the parts that are not empty with colons."""
    return ": ".join(filter(None, parts))
