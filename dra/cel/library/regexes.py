"""Regular expressions as in Go's regexp, with RE2 (cel-go `matches`, apiserver library/regex.go `find`, `findAll`).

Compiled patterns are cached. A search takes time linear in the text, but a pattern of eight characters can compile to
hundreds of thousands of instructions; `work` estimates the time of a search. RE2 gets patterns and texts as bytes, so
that the search for each further match does not encode the whole text again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dra.budget import Budget
from dra.cache import Cache
from dra.cel.signatures import Overload, method, over
from dra.cel.types import BOOL, INT, STRING, list_of
from dra.errors import CostExceeded, SelectorRunError

if TYPE_CHECKING:
    from dra.cel.values import Value

# RE2's limit in bytes for a compiled pattern. Few patterns need more than the first limit; the second is RE2's default.
_MEMORY_LIMITS: Final = (256 << 10, 8 << 20)
_PATTERNS: Cache[Any] = Cache(32 << 20)
_MAX_SCANNED: Final = 1_000_000_000  # bytes that one findAll may search, about a second; Go has no such limit
_WORK_PER_STEP: Final = 64  # instructions of the pattern times bytes of the text
# Steps to compile a character, a Unicode class such as \\pL, and an optional repetition. Repetitions per step: RE2
# expands repetitions before it checks its limits. Steps to compile under RE2's default limit, which takes up to half a
# second.
_CHARACTER, _CLASS, _OPTIONAL, _REPETITIONS_PER_STEP, _LARGE = 4, 250, 30, 4, 300_000
# `{1000}` and both ends of `{2,1000}`; RE2 allows no larger number.
_REPEATED = re.compile(r"\{(?:([0-9]{0,9}),)?([0-9]{1,9})\}")
_MAX_REPETITIONS: Final = 1000


class PatternError(ValueError):
    """RE2 rejects the pattern."""


def compile_pattern(pattern: str, budget: Budget | None = None) -> Any:  # an re2 pattern; the library has no types
    """Compile a pattern under the lowest memory limit that suffices, or return it from the cache; charge the budget."""
    program = _PATTERNS.get(pattern)
    if program is not None:
        return program
    import re2  # loads a shared library, and few selectors need it

    # An upper bound of the steps to compile the pattern under the first memory limit, or to exceed that limit.
    classes = pattern.count("\\p") + pattern.count("\\P")
    steps = 20 + _CHARACTER * len(pattern) + _CLASS * classes
    for low, high in re.findall(_REPEATED, pattern):
        repetitions = min(int(high), _MAX_REPETITIONS)
        optional = max(0, repetitions - int(low)) if low else 0
        steps += repetitions // _REPETITIONS_PER_STEP + _OPTIONAL * optional
    budget = budget or Budget()
    budget.charge_whole(steps)
    text = pattern.encode(errors="replace")
    options = re2.Options()
    options.log_errors = False
    options.never_nl = False
    for memory in _MEMORY_LIMITS:
        options.max_mem = memory
        if memory != _MEMORY_LIMITS[0]:
            budget.charge_whole(_LARGE)
        try:
            # Not `re2.compile`, which caches 128 patterns of up to 8 MiB.
            program = re2._Regexp(text, options)  # noqa: SLF001
        except re2.error as error:
            reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error.args[0])
            if "too large" not in reason or memory == _MEMORY_LIMITS[-1]:
                raise PatternError(reason) from None
        else:
            _PATTERNS.put(pattern, program, memory + 2 * len(pattern))
            return program
    raise AssertionError("the last memory limit either suffices or raises")


def work(instructions: int, size: int) -> int:
    """Return an upper bound of the budget steps of searching a text of `size` bytes for a pattern of `instructions`."""
    return 1 + instructions * size // _WORK_PER_STEP


def _pattern(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise SelectorRunError(f"error parsing regexp: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text."""
    return _pattern(pattern).search(text.encode()) is not None


def find(text: str, pattern: str) -> str:
    """Return the first match, or ""."""
    match = _pattern(pattern).search(text.encode())
    return match[0].decode() if match else ""


def find_all(text: str, pattern: str, count: int = -1) -> list[Value]:
    """Return all matches, or the first `count`."""
    if count == 0:
        return []
    search = _pattern(pattern).search
    data = text.encode()
    matched: list[Value] = []
    position, previous_end, scanned = 0, -1, 0
    while position <= len(data) and (count < 0 or len(matched) < count):
        scanned += len(data) - position
        if scanned > _MAX_SCANNED:
            raise CostExceeded("operation cancelled: findAll searches the text too often")
        match = search(data, position)
        if match is None:
            break
        start, end = match.span()
        # Go drops an empty match directly after the previous match.
        if end > start or start != previous_end:
            matched.append(match[0].decode())
        previous_end = position = end
        if start == end:  # continue at the next character
            position += 1
            while position < len(data) and data[position] & 0xC0 == 0x80:
                position += 1
    return matched


_TEXTS = list_of(STRING)

FUNCTIONS: tuple[Overload, ...] = (
    over("matches", "matches", (STRING, STRING), BOOL, matches),
    method("matches", "matches_string", (STRING, STRING), BOOL, matches),
    method("find", "string_find_string", (STRING, STRING), STRING, find),
    method("findAll", "string_find_all_string", (STRING, STRING), _TEXTS, find_all),
    method("findAll", "string_find_all_string_int", (STRING, STRING, INT), _TEXTS, find_all),
)  # fmt: skip
