"""What some calls are charged beyond Go's costs, because they cost more here or because Go charges too little for them.

Go copies no list to add two, but Python does. Two lists of lists of lists that share their parts are compared for a cost of
one in time that doubles with each level. `replace` is charged for the text that it reads, however much it writes. A pattern
is charged for its length, not for its program. So such calls charge work (`dra.cel.evaluation.account`) before or after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.cel.cost import MAX_COST
from dra.cel.evaluation.account import BUDGET, SPENT, overrun, room, toil, toil_whole
from dra.cel.library.regexes import PatternError, compile_pattern, work
from dra.cel.values import LARGEST_LIST, Optional, weigh

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.cel.evaluation.account import Frame
    from dra.cel.tree import Expr
    from dra.cel.values import Value

    Before = Callable[[Frame, list[Value]], None]
    After = Callable[[Frame, Value], None]

# Members of a value in a step: those that are looked at, those that are copied, and those that are made.
_SEEN, _COPIED, _MADE = 4, 16, 4
# Characters in a step that are written.
_WRITTEN: Final = 64
_NESTED: Final = frozenset(("list", "map", "dyn", "any", "opaque", "param"))


def before(node: Expr) -> Before | None:
    """Return what is charged before a call, when its arguments are known."""
    if node.name in ("_==_", "_!=_") and not all(map(_may_nest, node.args)):
        return None  # whatever is equal to a scalar is no deeper than that
    return _BEFORE.get(node.name)


def after(node: Expr) -> After | None:
    """Return what is charged for the result."""
    return None if node.name == "_+_" and not _may_nest(node) else _AFTER.get(node.name)


def _may_nest(node: Expr) -> bool:
    return node.kind != "literal" and node.type.kind in _NESTED


def _weigh(frame: Frame, value: Value) -> int:
    """Count the members of a value, as far as there is room for that and a little beyond."""
    return weigh(value, _SEEN * (room(frame) + 2))


def _weighing(position: int) -> Before:
    return lambda frame, args: toil(frame, _weigh(frame, args[position]) // _SEEN)


def _search(frame: Frame, args: list[Value]) -> None:
    """`in`: an item that has members itself takes time to compare with each member."""
    if type(args[0]) in (list, Optional) or isinstance(args[0], dict):
        toil(frame, _weigh(frame, args[1]) // _SEEN)


def _cross(frame: Frame, args: list[Value]) -> None:
    """Each member with each: as Go counts, unless they have members themselves."""
    weight, count = _weigh(frame, args[0]), len(args[0]) if type(args[0]) is list else 1
    if weight > 2 * count + 2:
        toil(frame, weight * count // _SEEN)


def _foresee(frame: Frame, args: list[Value]) -> None:
    """`lists.range`: Go charges for the list when it is there; one that will cost too much is not made first."""
    count = args[0]
    if type(count) is int and MAX_COST - frame[SPENT] <= count <= LARGEST_LIST:
        raise overrun()


def _match(frame: Frame, args: list[Value]) -> None:
    text, pattern = args[0], args[1]
    if type(text) is str and type(pattern) is str:
        try:
            program = compile_pattern(pattern, frame[BUDGET])
        except PatternError:
            return  # the call says so
        toil_whole(frame, work(program.programsize, len(text)))


def _match_all(frame: Frame, args: list[Value]) -> None:
    _match(frame, args)
    if type(args[0]) is str:
        toil(frame, len(args[0]) + (len(args[0]) ** 2 >> 10))


def _copy(frame: Frame, result: Value) -> None:
    if type(result) is list:
        toil(frame, len(result) // _COPIED)


def _make(frame: Frame, result: Value) -> None:
    toil(frame, len(result) // _MADE)


def _write(frame: Frame, result: Value) -> None:
    if type(result) is str:
        toil(frame, len(result) // _WRITTEN)


_BEFORE: dict[str, Before] = {
    "_==_": _weighing(0), "_!=_": _weighing(0), "@in": _search, "flatten": _weighing(0), "format": _weighing(1),
    "lists.range": _foresee, "matches": _match, "find": _match, "findAll": _match_all,
    **dict.fromkeys(("distinct", "sets.contains", "sets.intersects", "sets.equivalent"), _cross),
    **dict.fromkeys(("indexOf", "lastIndexOf", "includes"), _weighing(0)),
}  # fmt: skip
_AFTER: dict[str, After] = {
    "_+_": _copy, "optional.unwrap": _copy, "unwrapOpt": _copy, "split": _make, "findAll": _make,
    **dict.fromkeys(("replace", "join", "format"), _write),
}  # fmt: skip
