"""The syntax tree, and the limits of its size (github.com/google/cel-go/common/ast)."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from dra.cel.types import DYN, Type
from dra.errors import SelectorSyntaxError

MAX_HEIGHT = 800  # levels; `dra.cel.selector` extends Python's stack for a tree of this height
MAX_NODES = 20_000  # some macros copy their target, so a chain of such macros doubles the tree at each step

Literal = bool | int | float | str | bytes | None


class Expr(Struct, eq=False):
    """One node of the tree. The type checker sets `type` and `overloads`.

    `kind` determines the other fields:

    - ``literal``: `value`
    - ``ident``: `name`
    - ``select``: `args[0]` is the operand, `name` the field; ``has``: the same as a presence test
    - ``call``: `name` the function, `args` the arguments, with the target first if `member`
    - ``list``: `args`, and `optional` holds the positions marked with a question mark
    - ``map``: `args` alternates keys and values, and `optional` holds the positions of keys marked with a question mark
    - ``fold``: a comprehension, see `Fold`
    """

    kind: str
    position: int
    name: str = ""
    args: tuple[Expr, ...] = ()
    value: Literal = None
    member: bool = False
    optional: frozenset[int] = frozenset()
    fold: Fold | None = None
    type: Type = DYN
    overloads: tuple[str, ...] = ()


class Fold(NamedTuple):
    """A comprehension: `accu = init; for var in range: if not condition: break; accu = step; result`."""

    macro: str  # the kind of macro from which it was expanded: all, exists, exists_one, list, map or bind
    range: Expr
    var: str
    var2: str
    accu: str
    init: Expr
    condition: Expr
    step: Expr
    result: Expr


def literal(position: int, value: Literal) -> Expr:
    """Make a constant."""
    return Expr("literal", position, value=value)


def call(position: int, name: str, *args: Expr, member: bool = False) -> Expr:
    """Make a call; with `member` the first argument is the target."""
    return Expr("call", position, name=name, args=args, member=member)


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the direct parts of a node, in the order in which Go adds up costs."""
    fold = node.fold
    if fold is None:
        return node.args
    return (fold.range, fold.init, fold.condition, fold.step, fold.result)


def too_deep(position: int) -> SelectorSyntaxError:
    """Make the error for an expression that is nested too deeply."""
    return SelectorSyntaxError("the expression is nested too deeply: expression recursion limit exceeded", position)


def height_of(root: Expr) -> int:
    """Count the levels of a tree. Raise if it has more than MAX_HEIGHT levels or MAX_NODES nodes."""
    count = 0
    level = [root]
    for height in range(1, MAX_HEIGHT + 1):
        level = [child for node in level for child in children(node)]
        count += len(level)
        if count > MAX_NODES:
            raise SelectorSyntaxError("the expression becomes too large when its macros are expanded", root.position)
        if not level:
            return height
    raise too_deep(root.position)
