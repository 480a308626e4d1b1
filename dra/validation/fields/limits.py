"""What many rules share: lists with a limit, lists without duplicates, and the paths of members."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from dra.finding import Findings, finding_at
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Sized

    # What is wrong with a text, "" if nothing is; and what to do about it.
    Rule = Callable[[str], str]
    Hint = str | Callable[[str], str]

T = TypeVar("T")


def list_or_none(names: Collection[str], limit: int = 8) -> str:
    """List the first names, or "none"."""
    return list_first(names, limit) or "none"


def too_many(items: Sized, limit: int, path: str) -> Findings:
    """Report a list that is too long; the API server does not look at its items."""
    if len(items) > limit:
        yield finding_at("D104", path, f"{len(items)} entries, at most {limit} are allowed")


def duplicates(keys: Iterable[Hashable], path: str, noun: str, *, field: str = "") -> Findings:
    """Report entries of a list whose keys occur again; `field` is the pointer from an entry to its key."""
    earlier: set[Hashable] = set()
    for index, key in enumerate(keys):
        if key not in earlier:
            earlier.add(key)
            continue
        shown: object = key
        if isinstance(key, tuple):
            shown = "/".join(str(part) for part in key if part)
        yield finding_at("D105", f"{path}/{index}{field}", f"{noun} {shown!r} is given twice")


def entries(
    items: Sequence[T],
    limit: int,
    path: str,
    judge: Callable[[T, str], Findings],
    *,
    key: Callable[[T], Hashable] | None = None,
    noun: str = "",
    field: str = "",
) -> Findings:
    """Judge each entry of a list, and that no two have one key; at a list that is too long the API server does not look.

    `noun` names an entry that must be unique; its key is what is in `field`, or the entry itself, unless `key` reads it.
    """
    if len(items) > limit:
        yield from too_many(items, limit, path)
        return
    if noun:
        read_key = key or (attrgetter(field.removeprefix("/")) if field else None)
        yield from duplicates(map(read_key, items) if read_key else items, path, noun, field=field)
    for index, item in enumerate(items):
        yield from judge(item, f"{path}/{index}")


def wrong_format(text: str, rule: Rule, path: str, hint: Hint = "") -> Findings:
    """Report what a rule of `names` finds wrong with a text; a hint may be computed from the text."""
    if wrong := rule(text):
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        yield finding_at("D102", path, f"{shown!r} {wrong}", hint if isinstance(hint, str) else hint(text))


def required(text: str, path: str, rule: Rule | None = None, hint: Hint = "", *, noun: str = "") -> Findings:
    """Report a text that is empty or that a rule of `names` finds wrong; its name is the end of its path, or `noun`."""
    if not text:
        yield finding_at("D101", path, f"{noun or path.rpartition('/')[2]} is required")
    elif rule is not None:
        yield from wrong_format(text, rule, path, hint)
