"""A problem: what a rule finds wrong at one place, without the name of the object and without severity.

Rules yield problems; `dra.validation.codes` knows title, severity and general advice of each code, and the façade makes
findings of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Problem(NamedTuple):
    code: str
    path: str
    message: str
    remedy: str = ""


class Located(NamedTuple):
    """A problem that shows only among many objects, and the number of the object that it is about."""

    number: int
    problem: Problem


Problems = Iterator[Problem]
