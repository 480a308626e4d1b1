"""CEL expressions of claims and classes: length, compilation, result type and worst-case cost (validateCELExpression).

As in the API server, expressions of new objects can use only what the previous minor version had, so that the server can be rolled back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dra import cel, names
from dra.errors import SelectorError
from dra.finding import Finding, Findings, finding_at
from dra.validation.fields.limits import entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.objects import DeviceSelector
    from dra.server import Server

MAX_SELECTORS: Final = 32
MAX_EXPRESSION: Final = 10 * 1024

_KINDS: Final = "(?:string|int|bool|version|quantity)"
_OUTDATED: Final = (
    (
        re.compile(rf"""device\.attributes\[["'][^"']*["']\]\.{_KINDS}\b(?!["'\w(])"""),
        "in CEL, the name of the attribute follows the domain, without the kind of the value",
        'write device.attributes["domain"].name: the value is a string, int, bool or version by itself',
    ),
    (
        re.compile(rf"""device\.{_KINDS}(?:attributes|slice)?\s*\["""),
        "this form of v1alpha2 and v1alpha3, with the kind of the value, was removed",
        'write device.attributes["domain"].name',
    ),
    (
        re.compile(r"""device\.attributes\[["'][^"'/]+/[^"']+["']\]"""),
        "the name of the attribute does not belong in the brackets with the domain",
        'write device.attributes["domain"].name instead of device.attributes["domain/name"]',
    ),
    (
        re.compile(r"""device\.attributes\.[A-Za-z_]"""),
        "an attribute is found by the domain of its driver",
        'write device.attributes["domain"].name',
    ),
    (
        re.compile(r"""\battributes\.(?:string|int|bool|version|quantity)(?:slice)?\b|(?<![.\w])attributes\s*\["""),
        "attributes belong to `device`",
        'write device.attributes["domain"].name',
    ),
)


def selectors(values: Sequence[DeviceSelector], path: str, server: Server) -> Findings:
    """Judge the selectors of a class or a request."""

    def validate(selector: DeviceSelector, pointer: str) -> Findings:
        if selector.cel is None:
            yield finding_at("D101", f"{pointer}/cel", "cel is required: it is the only kind of selector")
        else:
            yield from expression(selector.cel.expression, f"{pointer}/cel/expression", server)

    yield from entries(values, MAX_SELECTORS, path, validate)


def expression(text: str, path: str, server: Server) -> Findings:
    """Judge a CEL expression over a device whose result is a boolean."""
    yield from _judge(text, path, server, derived=False)[0]


def judge_derived(text: str, path: str, server: Server) -> tuple[list[Finding], int]:
    """Judge the expression of a derived attribute. Return the findings and the worst-case cost of the expression."""
    return _judge(text, path, server, derived=True) if text else ([], 0)


def _judge(text: str, path: str, server: Server, *, derived: bool) -> tuple[list[Finding], int]:
    if names.size(text) > MAX_EXPRESSION:
        return [finding_at("D103", path, f"{names.size(text)} bytes, at most {MAX_EXPRESSION} are allowed")], 0
    try:
        selector = cel.compile(text, cel.NEW, gates=server.gates, minor=server.minor, derived=derived)
    except SelectorError as error:
        where = ""
        if error.position is not None:  # the line is shown only for multi-line expressions
            line = text.count("\n", 0, error.position) + 1
            column = f"column {error.position - text.rfind(chr(10), 0, error.position)}"
            where = f" (line {line}, {column})" if line > 1 else f" ({column})"
        hint = next((hint for _, hint in old_forms(text)), "")
        if "'includes'" in str(error):
            hint = "includes is a function since Kubernetes 1.36 with the feature gate DRAListTypeAttributes, and since 1.38 without it"
        return [finding_at("D110", path, f"{error}{where}", hint)], 0
    if selector.max_cost > cel.MAX_COST:
        message = f"the expression may cost {selector.max_cost}, and the limit is {cel.MAX_COST}"
        return [finding_at("D111", path, message)], selector.max_cost
    return [finding_at("D312", path, message, hint) for message, hint in old_forms(text)], selector.max_cost


def old_forms(text: str) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each outdated form in an expression."""
    for pattern, message, hint in _OUTDATED:
        if pattern.search(text):
            yield message, hint
