"""Lists of CPUs as Linux writes them: `0-3,8`."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 8192  # CPUs that Linux can count
_PART = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?").fullmatch


class Unlisted(ValueError):  # noqa: N818  what the text is not
    """A text that is no list of numbers."""


def numbers_of(text: str) -> tuple[int, ...]:
    """Read a list."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _PART(part.strip())
        if match is None:
            raise Unlisted(f"{part!r} is not a number such as 3, or a range such as 0-7")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first or last >= MOST:
            raise Unlisted(f"{part!r} goes down, or beyond {MOST - 1}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def listed(numbers: Iterable[int]) -> str:
    """Write a list, in ranges where there are any."""
    parts: list[str] = []
    # Numbers of one range are as far from their places as the first of it.
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        part = str(members[0])
        if len(members) > 1:
            part = f"{part}-{members[-1]}"
        parts.append(part)
    return ",".join(parts)
