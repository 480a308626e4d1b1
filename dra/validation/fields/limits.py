"""What many rules share: lists with a limit, lists without duplicates, and the paths of members."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sized

    Hint = str | Callable[[str], str]

T = TypeVar("T")


def some(names: Iterable[str], limit: int = 8) -> str:
    """Name a few of many."""
    known = list(names)
    more = f" and {len(known) - limit} more" if len(known) > limit else ""
    return (", ".join(known[:limit]) or "none") + more


def too_many(items: Sized, limit: int, path: str) -> Problems:
    """Complain about a list that is too long; the API server looks at no item of such a list."""
    if len(items) > limit:
        yield Problem("D104", path, f"{len(items)} entries, at most {limit} are allowed")


def duplicates(keys: Iterable[Hashable], path: str, what: str, *, field: str = "") -> Problems:
    """Complain about entries of a list whose keys occur again; `field` leads from an entry to its key."""
    seen: set[Hashable] = set()
    for index, key in enumerate(keys):
        if key not in seen:
            seen.add(key)
            continue
        shown: object = key
        if isinstance(key, tuple):
            shown = "/".join(str(part) for part in key if part)
        yield Problem("D105", f"{path}/{index}{field}", f"{what} {shown!r} is given twice")


def empty_text(text: str, path: str, what: str) -> Problems:
    """Complain about a text that is empty."""
    if not text:
        yield Problem("D101", path, f"{what} is required")


def wrong_format(text: str, wrong: str, path: str, hint: Hint = "") -> Problems:
    """Complain with what a function of `names` found wrong about a text; a hint may be made from the text."""
    if wrong:
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        yield Problem("D102", path, f"{shown!r} {wrong}", hint if isinstance(hint, str) else hint(text))


def empty_or_wrong_format(text: str, wrong: str, path: str, what: str, hint: Hint = "") -> Problems:
    """Complain about a text that is empty, or else that has the wrong format."""
    if text:
        yield from wrong_format(text, wrong, path, hint)
    else:
        yield Problem("D101", path, f"{what} is required")
