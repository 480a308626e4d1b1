"""Regular expressions through RE2, as Go's regexp (cel-go `matches`, apiserver library/regex.go `find`, `findAll`).

Compiled patterns are kept, up to a number of bytes. RE2 is linear in the text, but eight characters of pattern can be
hundreds of thousands of instructions; `work` says how much a search may be. Patterns and texts go to RE2 as bytes, so that
looking for the next of many occurrences does not encode the whole text again.
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

# What a program and its automaton may use. Few patterns need more than the first; RE2's own default is the second.
_MEMORY: Final = (256 << 10, 8 << 20)
_PATTERNS: Cache[Any] = Cache(32 << 20)
# Bytes that looking for all occurrences may go through, again and again: about a second. Go has no such limit.
_MOST_SCANNED: Final = 1_000_000_000
# Instructions times bytes in a step of a budget.
_WORK_IN_A_STEP: Final = 64
# Steps for compiling: for a character, for a class of Unicode such as \\pL; so many times that something is repeated are one,
# for RE2 writes it out before it counts; for a time that may be left out; and where RE2's own limit is tried out, which takes
# up to half a second.
_CHARACTER, _CLASS, _TIMES, _OPTIONAL, _LARGE = 4, 250, 4, 30, 300_000
# `{1000}` and both ends of `{2,1000}`; RE2 takes no larger number.
_REPEATED = re.compile(r"\{(?:([0-9]{0,9}),)?([0-9]{1,9})\}")
_MOST_TIMES: Final = 1000


class PatternError(ValueError):
    """RE2 does not take the pattern."""


def compile_pattern(pattern: str, budget: Budget | None = None) -> Any:  # an re2 pattern; the library has no types
    """Compile a pattern once, with as little memory as will do, at the expense of the budget."""
    known = _PATTERNS.get(pattern)
    if known is not None:
        return known
    import re2  # loads a shared library, and few selectors need it

    # How many steps RE2 may take to read the pattern and to find that it needs more than the first amount of memory.
    classes = pattern.count("\\p") + pattern.count("\\P")
    steps = 20 + _CHARACTER * len(pattern) + _CLASS * classes
    for least, most in re.findall(_REPEATED, pattern):
        times = min(int(most), _MOST_TIMES)
        optional = max(0, times - int(least)) if least else 0
        steps += times // _TIMES + _OPTIONAL * optional
    budget = budget or Budget()
    budget.charge_whole(steps)
    text = pattern.encode(errors="replace")
    options = re2.Options()
    options.log_errors = False
    options.never_nl = False
    for memory in _MEMORY:
        options.max_mem = memory
        if memory != _MEMORY[0]:
            budget.charge_whole(_LARGE)
        try:
            # Not `re2.compile`, which keeps 128 patterns of up to 8 MiB for itself.
            known = re2._Regexp(text, options)  # noqa: SLF001
        except re2.error as error:
            said = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error.args[0])
            if "too large" not in said or memory == _MEMORY[-1]:
                raise PatternError(said) from None
        else:
            _PATTERNS.put(pattern, known, memory + 2 * len(pattern))
            return known
    raise AssertionError("the last amount of memory either does or is an error")


def work(instructions: int, size: int) -> int:
    """Return how many steps of a budget a search of a text of this size may take, by the size of the pattern's program."""
    return 1 + instructions * size // _WORK_IN_A_STEP


def _pattern(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise SelectorRunError(f"error parsing regexp: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text."""
    return _pattern(pattern).search(text.encode()) is not None


def find(text: str, pattern: str) -> str:
    """Return the first occurrence, or nothing."""
    match = _pattern(pattern).search(text.encode())
    return match[0].decode() if match else ""


def find_all(text: str, pattern: str, count: int = -1) -> list[Value]:
    """Return all occurrences, or the first few."""
    if count == 0:
        return []
    search = _pattern(pattern).search
    data = text.encode()
    found: list[Value] = []
    position, previous_end, scanned = 0, -1, 0
    while position <= len(data) and (count < 0 or len(found) < count):
        scanned += len(data) - position
        if scanned > _MOST_SCANNED:
            raise CostExceeded("operation cancelled: findAll goes through the text too often")
        match = search(data, position)
        if match is None:
            break
        start, end = match.span()
        # Go drops an empty match that touches the one before it.
        if end > start or start != previous_end:
            found.append(match[0].decode())
        previous_end = position = end
        if start == end:  # on to the next character
            position += 1
            while position < len(data) and data[position] & 0xC0 == 0x80:
                position += 1
    return found


_TEXTS = list_of(STRING)

FUNCTIONS: tuple[Overload, ...] = (
    over("matches", "matches", (STRING, STRING), BOOL, matches),
    method("matches", "matches_string", (STRING, STRING), BOOL, matches),
    method("find", "string_find_string", (STRING, STRING), STRING, find),
    method("findAll", "string_find_all_string", (STRING, STRING), _TEXTS, find_all),
    method("findAll", "string_find_all_string_int", (STRING, STRING, INT), _TEXTS, find_all),
)  # fmt: skip
