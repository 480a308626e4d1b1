"""Expands the macros `has`, `all`, `exists`, `map`, `cel.bind`, … (cel-go parser/macro.go, ext, cel/library.go).

An expansion must be exactly the tree that Go makes, because the cost of an expression is counted on the expanded tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.cel.tree import MAX_NODES, Expr, Fold, call, children, literal
from dra.errors import SelectorSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable

    _Args = tuple[Expr, ...]

ACCUMULATOR = "@result"
UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"


def expand(position: int, name: str, target: Expr | None, args: _Args) -> Expr | None:
    """Expand a call if it is a macro, else return None."""
    if target is not None:
        macro = _MACROS.get((name, len(args)))
        return macro(position, target, args) if macro is not None else None
    if name != "has" or len(args) != 1:
        return None
    (field,) = args
    if field.kind != "select":
        raise SelectorSyntaxError("invalid argument to has() macro: name a field, as in has(a.b)", field.position)
    return Expr("has", field.position, name=field.name, args=field.args)


def _accu(position: int) -> Expr:
    return Expr("ident", position, name=ACCUMULATOR)


def _variable(node: Expr, why: str = "argument must be a simple name") -> str:
    if node.kind != "ident":
        raise SelectorSyntaxError(why, node.position)
    if node.name in (ACCUMULATOR, "__result__"):
        raise SelectorSyntaxError("iteration variable overwrites accumulator variable", node.position)
    return node.name


def _variables(args: _Args, two: bool) -> tuple[str, str]:
    if not two:
        return _variable(args[0]), ""
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise SelectorSyntaxError(f"duplicate variable name: {first}", args[1].position)
    return first, second


def _fold(  # noqa: PLR0917 - the parts of one comprehension
    position: int,
    macro: str,
    target: Expr,
    variables: tuple[str, str],
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr | None = None,
) -> Expr:
    """Make a comprehension. Without `result`, its result is the accumulator."""
    return Expr(
        "fold",
        position,
        fold=Fold(macro, target, *variables, ACCUMULATOR, init, condition, step, result or _accu(position)),
    )


def _all(position: int, target: Expr, args: _Args) -> Expr:
    go_on = call(position, "@not_strictly_false", _accu(position))
    step = call(position, "_&&_", _accu(position), args[-1])
    return _fold(position, "all", target, _variables(args, len(args) == 3), literal(position, True), go_on, step)


def _exists(position: int, target: Expr, args: _Args) -> Expr:
    go_on = call(position, "@not_strictly_false", call(position, "!_", _accu(position)))
    step = call(position, "_||_", _accu(position), args[-1])
    return _fold(position, "exists", target, _variables(args, len(args) == 3), literal(position, False), go_on, step)


def _exists_one(position: int, target: Expr, args: _Args) -> Expr:
    incremented = call(position, "_+_", _accu(position), literal(position, 1))
    step = call(position, "_?_:_", args[-1], incremented, _accu(position))
    result = call(position, "_==_", _accu(position), literal(position, 1))
    variables = _variables(args, len(args) == 3)
    return _fold(position, "exists_one", target, variables, literal(position, 0), literal(position, True), step, result)


def _collect(  # noqa: PLR0917 - the parts of one comprehension
    position: int, kind: str, target: Expr, variables: tuple[str, str], step: Expr, keep: Expr | None
) -> Expr:
    """Make a comprehension that collects a list or a map of the entries for which `keep` holds."""
    if keep is not None:
        step = call(position, "_?_:_", keep, step, _accu(position))
    return _fold(position, kind, target, variables, Expr(kind, position), literal(position, True), step)


def _append(position: int, item: Expr) -> Expr:
    return call(position, "_+_", _accu(position), Expr("list", position, args=(item,)))


def _map(position: int, target: Expr, args: _Args) -> Expr:
    variables = _variable(args[0], "argument is not an identifier"), ""
    return _collect(
        position, "list", target, variables, _append(position, args[-1]), args[1] if len(args) == 3 else None
    )


def _filter(position: int, target: Expr, args: _Args) -> Expr:
    return _map(position, target, (*args, args[0]))


def _transform(name: str) -> Callable[[int, Expr, _Args], Expr]:
    def expander(position: int, target: Expr, args: _Args) -> Expr:
        variables = _variables(args, two=True)
        keep = args[2] if len(args) == 4 else None
        result = args[-1]
        if name == "transformList":
            return _collect(position, "list", target, variables, _append(position, result), keep)
        entry: _Args = (result,)
        if name == "transformMap":
            key = Expr("ident", position, name=variables[0])
            entry = (key, result)
        insert = call(position, "cel.@mapInsert", _accu(position), *entry)
        return _collect(position, "map", target, variables, insert, keep)

    return expander


def _bind_name(position: int, name: str, value: Expr, result: Expr) -> Expr:
    step = Expr("ident", position, name=name)
    fold = Fold("bind", Expr("list", position), UNUSED, "", name, value, literal(position, False), step, result)
    return Expr("fold", position, fold=fold)


def _bind(position: int, target: Expr, args: _Args) -> Expr | None:
    if target.kind != "ident" or target.name != "cel":
        return None
    variable, value, result = args
    if variable.kind != "ident":
        raise SelectorSyntaxError("cel.bind() variable names must be simple identifiers", variable.position)
    return _bind_name(position, variable.name, value, result)


def _opt_map(flat: bool) -> Callable[[int, Expr, _Args], Expr]:
    def expander(position: int, target: Expr, args: _Args) -> Expr:
        variable, result = args
        if variable.kind != "ident":
            raise SelectorSyntaxError("optMap() variable name must be a simple identifier", variable.position)
        value = call(position, "value", _copy(target), member=True)
        present_value = _bind_name(position, variable.name, value, result)
        if not flat:
            present_value = call(position, "optional.of", present_value)
        return call(
            position,
            "_?_:_",
            call(position, "hasValue", target, member=True),
            present_value,
            call(position, "optional.none"),
        )

    return expander


def _sort_by(position: int, target: Expr, args: _Args) -> Expr:
    if target.kind not in ("list", "select", "ident", "fold", "call"):
        raise SelectorSyntaxError(
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression", position
        )
    mapped = Expr("ident", position, name=_SORT_INPUT)
    keys = _map(position, mapped, args)
    sorted_ = Expr("ident", position, name=_SORT_INPUT)
    by = call(position, "@sortByAssociatedKeys", sorted_, keys, member=True)
    return _bind_name(position, _SORT_INPUT, target, by)


def _copy(root: Expr) -> Expr:
    """Copy a tree; raise for a tree with more than half of MAX_NODES nodes."""
    count = 0

    def copy(node: Expr) -> Expr:
        nonlocal count
        count += 1
        if count > MAX_NODES // 2:
            raise SelectorSyntaxError("the expression becomes too large when its macros are expanded", root.position)
        args = tuple(copy(arg) for arg in node.args)
        fold = node.fold
        if fold is not None:
            range_, init, condition, step, result = map(copy, children(node))
            fold = Fold(fold.macro, range_, fold.var, fold.var2, fold.accu, init, condition, step, result)
        return replace(node, args=args, fold=fold)

    return copy(root)


_MACROS: dict[tuple[str, int], Callable[[int, Expr, _Args], Expr | None]] = {
    **{(name, count): expander for name, expander in (("all", _all), ("exists", _exists), ("exists_one", _exists_one)) for count in (2, 3)},
    ("existsOne", 3): _exists_one,
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    **{(name, count): _transform(name) for name in ("transformList", "transformMap", "transformMapEntry") for count in (3, 4)},
    ("bind", 3): _bind,
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("sortBy", 2): _sort_by,
}  # fmt: skip
