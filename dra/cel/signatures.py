"""How the libraries declare their functions, and the one table made of them all.

The checker, the cost estimate and the closures read the same rows: a row is one overload of a function, with the id it has in
Go (costs hang on it), its types, and the Python function that does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra.cel.types import Type
    from dra.cel.values import Value

    Work = Callable[..., Value]


class Overload(NamedTuple):
    """One signature of a function. For a method the first argument is the target."""

    name: str
    id: str
    args: tuple[Type, ...]
    result: Type
    work: Work | None
    method: bool
    params: tuple[Type, ...]
    # The work looks at the types itself, and is safe to call with anything.
    total: bool


def over(
    name: str, id_: str, args: tuple[Type, ...], result: Type, work: Work | None = None, *, total: bool = False
) -> Overload:
    """Declare a global overload."""
    return Overload(name, id_, args, result, work, False, _params((*args, result)), total)


def method(
    name: str, id_: str, args: tuple[Type, ...], result: Type, work: Work | None = None, *, total: bool = False
) -> Overload:
    """Declare an overload that is called on its first argument."""
    return over(name, id_, args, result, work, total=total)._replace(method=True)


def _params(types: Iterable[Type]) -> tuple[Type, ...]:
    found: dict[Type, None] = {}
    for t in types:
        if t.kind == "param":
            found[t] = None
        else:
            found.update(dict.fromkeys(_params(t.params)))
    return tuple(found)


def merge(*libraries: Iterable[Overload]) -> dict[str, tuple[Overload, ...]]:
    """Put libraries together; the overloads of a name add up in order."""
    table: dict[str, tuple[Overload, ...]] = {}
    for library in libraries:
        for overload in library:
            table[overload.name] = (*table.get(overload.name, ()), overload)
    return table
