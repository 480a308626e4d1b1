"""Decides from the texts of selectors whether they can match devices of a driver and of a type (the attribute `type`).

A selector is split at `&&`. Each part that reads only driver and type is evaluated on a hypothetical device of that driver and type. Other
parts are ignored. So the answer "no" is certain, and the answer "yes" is not.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dra import cel
from dra.errors import SelectorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget

# Limits on the characters of a selector and of a part, and on the number of compiled parts. Longer texts are rarely about driver and type.
_LONGEST_WHOLE: Final = 2_000
_LONGEST: Final = 300
_MAX: Final = 64
# The strings, brackets and operators that determine where a part ends. A text with comments, escapes or triple quotes is not split.
_SIGN: Final = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"|\.\?|[()\[\]{}]|&&|\|\||//|[?'\"\\]")
_CHOOSING: Final = frozenset(("||", "?"))
_DARK: Final = frozenset(("//", "'", '"', "\\"))


class DeviceScope:
    """Evaluates selectors on hypothetical devices. It compiles a limited number of parts."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget
        self._parts: dict[str, list[cel.Selector]] = {}
        self._known: dict[tuple[str, str, str], bool] = {}
        self._left = _MAX

    def may_pick(self, expressions: Iterable[str], driver: str, type_: str = "") -> bool:
        """Whether selectors may match a device of a driver and, if `type_` is not empty, of this type. Only False is certain."""
        for expression in expressions:
            if self._budget is not None:
                self._budget.charge()
            key = expression, driver, type_
            if key not in self._known:
                self._known[key] = self._evaluate(*key)
            if not self._known[key]:
                return False
        return True

    def _evaluate(self, expression: str, driver: str, type_: str) -> bool:
        parts = self._parts.get(expression)
        if parts is None:
            parts = self._parts[expression] = []
            if self._budget is not None:
                self._budget.charge(len(expression) // 16)
            split_parts = conjuncts(expression) if len(expression) <= _LONGEST_WHOLE else []
            texts = [text for text in split_parts if len(text) <= _LONGEST][: self._left]
            self._left -= len(texts)
            for text in texts:
                with suppress(SelectorError):  # another check reports selectors that do not compile
                    parts.append(cel.compile(text, budget=self._budget))
        view = cel.DeviceView(driver, {driver: {"type": type_}} if type_ else {}, {})
        readable_names = {("attributes", driver, "type")} if type_ else set()
        for part in parts:
            reads = part.reads
            if not reads.everything and reads.scalars <= {"driver"} and reads.names <= readable_names:
                with suppress(SelectorError):
                    if not part.matches(view, self._budget):
                        return False
        return True


def conjuncts(expression: str) -> list[str]:
    """Split an expression at each `&&` outside of brackets. An expression with comments, escapes, `||` or `?:` is not split."""
    parts: list[str] = []
    start = depth = 0
    for match in _SIGN.finditer(expression):
        sign = match.group()
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif depth == 0 and sign == "&&":
            parts.append(expression[start : match.start()])
            start = match.end()
        elif sign in _DARK or (depth == 0 and sign in _CHOOSING):
            return [expression]
    return [*parts, expression[start:]]
