"""The declarations of functions, which the type checker, the cost estimate and the evaluation share.

A declaration is one overload of a function: its id in Go (which determines the cost), its types, and the Python
function that computes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.errors import SelectorRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.cel.types import Type
    from dra.cel.values import Value

    Work = Callable[..., Value]


class Overload(NamedTuple):
    """One signature of a function. The first argument of a method is its target."""

    name: str
    id: str
    args: tuple[Type, ...]
    result: Type
    work: Work | None
    method: bool
    params: tuple[Type, ...]
    # Whether `work` checks types itself, so that it can be called with any arguments.
    total: bool


def over(
    name: str, id_: str, args: tuple[Type, ...], result: Type, work: Work | None = None, *, total: bool = False
) -> Overload:
    """Declare a global overload."""
    return Overload(name, id_, args, result, work, False, _params((*args, result)), total)


def method(
    name: str, id_: str, args: tuple[Type, ...], result: Type, work: Work | None = None, *, total: bool = False
) -> Overload:
    """Declare a method: an overload called on its first argument."""
    return over(name, id_, args, result, work, total=total)._replace(method=True)


def succeeds(parse: Callable[..., object]) -> Callable[..., bool]:
    """Make a function that returns whether `parse` accepts its arguments."""

    def check(*args: object) -> bool:
        try:
            parse(*args)
        except SelectorRunError:
            return False
        return True

    return check


def _params(types: Iterable[Type]) -> tuple[Type, ...]:
    params: dict[Type, None] = {}
    for t in types:
        params.update(dict.fromkeys((t,) if t.kind == "param" else _params(t.params)))
    return tuple(params)


def merge(*libraries: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    """Combine libraries into one table, which keeps the order of the overloads of a name."""
    table: dict[str, tuple[Overload, ...]] = {}
    for library in libraries:
        for overload in library:
            table[overload.name] = (*table.get(overload.name, ()), overload)
    return table
