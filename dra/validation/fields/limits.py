"""Helpers of the rules: lists with a limit, lists without duplicates, texts with a format, and required texts."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from dra.finding import Findings, finding_at
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Sized

    # A rule returns what is wrong with a text, "" if nothing is; a hint returns what to do about it.
    Rule = Callable[[str], str]
    Hint = str | Callable[[str], str]

T = TypeVar("T")


def list_or_none(names: Collection[str], limit: int = 8) -> str:
    """Return the first names as text, or "none"."""
    return list_first(names, limit) or "none"


def too_many(items: Sized, limit: int, path: str) -> Findings:
    """Yield a finding if a list is too long. The API server does not validate the items of such a list."""
    if len(items) > limit:
        yield finding_at("D104", path, f"{len(items)} entries, at most {limit} are allowed")


def duplicates(keys: Iterable[Hashable], path: str, noun: str, *, field: str = "") -> Findings:
    """Yield a finding for each entry whose key an earlier entry of the list has; `field` is the pointer from an entry to its key."""
    earlier_keys: set[Hashable] = set()
    for index, key in enumerate(keys):
        if key not in earlier_keys:
            earlier_keys.add(key)
            continue
        shown_key: object = key
        if isinstance(key, tuple):
            shown_key = "/".join(str(part) for part in key if part)
        yield finding_at("D105", f"{path}/{index}{field}", f"{noun} {shown_key!r} is given twice")


def entries(
    items: Sequence[T],
    limit: int,
    path: str,
    validate: Callable[[T, str], Findings],
    *,
    key: Callable[[T], Hashable] | None = None,
    noun: str = "",
    field: str = "",
) -> Findings:
    """Judge each entry of a list, and report repeated keys. As in the API server, the entries of a list that is too long are not judged.

    Messages call an entry `noun`. The key of an entry is the result of `key`, else the value of its `field`, else the entry itself.
    """
    if len(items) > limit:
        yield from too_many(items, limit, path)
        return
    if noun:
        read_key = key or (attrgetter(field.removeprefix("/")) if field else None)
        yield from duplicates(map(read_key, items) if read_key else items, path, noun, field=field)
    for index, item in enumerate(items):
        yield from validate(item, f"{path}/{index}")


def wrong_format(text: str, rule: Rule, path: str, hint: Hint = "") -> Findings:
    """Yield a finding if a rule of `names` rejects a text. `hint` may be a function of the text."""
    if problem := rule(text):
        excerpt = text if len(text) <= 80 else f"{text[:77]}..."
        yield finding_at("D102", path, f"{excerpt!r} {problem}", hint if isinstance(hint, str) else hint(text))


def required(text: str, path: str, rule: Rule | None = None, hint: Hint = "", *, noun: str = "") -> Findings:
    """Yield a finding if a text is empty or a rule of `names` rejects it. Messages call the text `noun`, by default the end of its path."""
    if not text:
        yield finding_at("D101", path, f"{noun or path.rpartition('/')[2]} is required")
    elif rule is not None:
        yield from wrong_format(text, rule, path, hint)
