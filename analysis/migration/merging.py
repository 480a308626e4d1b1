"""Merges two edits of one value, so that both survive."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

import msgspec

_ABSENT: Final[Any] = object()


class Conflict(Exception):  # noqa: N818  what has happened
    """Both edits change the same part of the value, each in its own way."""


class _Hunk(NamedTuple):
    """Items that take the place of those from `start` to `end`."""

    start: int
    end: int
    items: list[Any]


def merged(base: Any, first: Any, second: Any) -> Any:
    """Return `base` with the changes of both edits. Raises Conflict."""
    if first == base:
        return second
    if second in (base, first):
        return first
    if isinstance(first, dict) and isinstance(second, dict) and (base is _ABSENT or isinstance(base, dict)):
        old = {} if base is _ABSENT else base
        members = {}
        for name in dict.fromkeys((*first, *second)):
            parts = [value.get(name, _ABSENT) for value in (old, first, second)]
            if (member := merged(*parts)) is not _ABSENT:
                members[name] = member
        return members
    if isinstance(first, list) and isinstance(second, list) and (base is _ABSENT or isinstance(base, list)):
        return _merged_lists([] if base is _ABSENT else base, first, second)
    raise Conflict


def _merged_lists(base: list[Any], first: list[Any], second: list[Any]) -> list[Any]:
    hunks = sorted((*_hunks(base, first), *_hunks(base, second)), key=lambda hunk: (hunk.start, hunk.end))
    result: list[Any] = []
    position = 0
    while hunks:
        start, end, items = hunks.pop(0)
        if start < position:
            raise Conflict
        if hunks and hunks[0][:2] == (start, end):
            items = _merged_items(base[start:end], items, hunks.pop(0).items, is_sorted=_is_sorted(base))
        result += [*base[position:start], *items]
        position = end
    return [*result, *base[position:]]


def _merged_items(base: list[Any], first: list[Any], second: list[Any], *, is_sorted: bool) -> list[Any]:
    """Merge two replacements of the same items."""
    if len(base) == len(first) == len(second):
        return [merged(*items) for items in zip(base, first, second, strict=True)]
    if base and [] not in (first, second):
        raise Conflict
    items = [*first, *[item for item in second if item not in first]]
    return sorted(items) if is_sorted else items


def _is_sorted(items: list[Any]) -> bool:
    return all(isinstance(item, str) for item in items) and items == sorted(items)


def _hunks(before: list[Any], after: list[Any]) -> list[_Hunk]:
    """Return how `after` differs from `before`; items that are replaced one by one are hunks of their own."""
    old, new = ([msgspec.json.encode(item, order="deterministic") for item in items] for items in (before, after))
    hunks = []
    for tag, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        if end - start == last - first:
            hunks += [_Hunk(start + index, start + index + 1, [after[first + index]]) for index in range(end - start)]
        else:
            hunks.append(_Hunk(start, end, after[first:last]))
    return hunks
