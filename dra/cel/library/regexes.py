"""Regular expressions through RE2, as Go's regexp (cel-go `matches`, apiserver library/regex.go `find`, `findAll`).

Compiled patterns are kept; a search of RE2 is linear in the text, so no pattern can make it hang.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dra.cel.signatures import Function, function, method, over
from dra.cel.types import BOOL, INT, STRING, list_of
from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from dra.cel.values import Value


class PatternError(ValueError):
    """RE2 does not take the pattern."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:  # an re2 pattern; the library has no types
    """Compile a pattern once."""
    import re2  # loads a shared library, and few selectors need it

    options = re2.Options()
    options.log_errors = False
    options.never_nl = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise PatternError(error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])) from None


def _search(pattern: str) -> Any:
    try:
        return compiled(pattern).search
    except PatternError as error:
        raise SelectorRunError(f"error parsing regexp: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text."""
    return _search(pattern)(text) is not None


def find(text: str, pattern: str) -> str:
    """Return the first occurrence, or nothing."""
    match = _search(pattern)(text)
    return match[0] if match else ""


def find_all(text: str, pattern: str, count: int = -1) -> list[Value]:
    """Return all occurrences, or the first few."""
    if count == 0:
        return []
    search = _search(pattern)
    found: list[Value] = []
    position, previous_end = 0, -1
    while position <= len(text) and (count < 0 or len(found) < count):
        match = search(text, position)
        if match is None:
            break
        start, end = match.span()
        # Go drops an empty match that touches the one before it.
        if end > start or start != previous_end:
            found.append(match[0])
        previous_end = end
        position = end if end > start else end + 1
    return found


_TEXTS = list_of(STRING)

FUNCTIONS: tuple[Function, ...] = (
    function(
        "matches",
        over("matches", (STRING, STRING), BOOL, matches),
        method("matches_string", (STRING, STRING), BOOL, matches),
    ),
    function("find", method("string_find_string", (STRING, STRING), STRING, find)),
    function(
        "findAll",
        method("string_find_all_string", (STRING, STRING), _TEXTS, find_all),
        method("string_find_all_string_int", (STRING, STRING, INT), _TEXTS, find_all),
    ),
)
