"""The macros: `has`, `all`, `exists`, `map`, `cel.bind`, … as comprehensions (cel-go parser/macro.go, ext, cel/library.go).

An expansion must have the very shape it has in Go, because costs are counted on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel.syntax import MAX_NODES, Expr, Fold, call, children, literal, make_fold
from dra.errors import SelectorSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable

    _Args = tuple[Expr, ...]

ACCUMULATOR = "@result"
UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"


def expand(position: int, name: str, target: Expr | None, args: _Args) -> Expr | None:
    """Expand a call if it is a macro; None leaves it a call."""
    count = len(args)
    if target is None:
        is_has = name == "has" and count == 1
        return _has(args[0]) if is_has else None
    macro = _MACROS.get((name, count))
    if macro is None:
        return None
    return macro(position, target, args)


def _has(arg: Expr) -> Expr:
    if arg.kind != "select":
        raise SelectorSyntaxError("invalid argument to has() macro: name a field, as in has(a.b)", arg.position)
    return Expr("has", arg.position, name=arg.name, args=arg.args)


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


def _quantifier(name: str, two: bool) -> Callable[[int, Expr, tuple[Expr, ...]], Expr]:
    def all_(at: int, target: Expr, args: _Args) -> Expr:
        var, var2 = _variables(args, two)
        fold = Fold(
            "all",
            target,
            var,
            var2,
            ACCUMULATOR,
            init=literal(at, True),
            condition=call(at, "@not_strictly_false", _accu(at)),
            step=call(at, "_&&_", _accu(at), args[-1]),
            result=_accu(at),
        )
        return make_fold(at, fold)

    def exists(at: int, target: Expr, args: _Args) -> Expr:
        var, var2 = _variables(args, two)
        none_yet = call(at, "!_", _accu(at))
        fold = Fold(
            "exists",
            target,
            var,
            var2,
            ACCUMULATOR,
            init=literal(at, False),
            condition=call(at, "@not_strictly_false", none_yet),
            step=call(at, "_||_", _accu(at), args[-1]),
            result=_accu(at),
        )
        return make_fold(at, fold)

    def exists_one(at: int, target: Expr, args: _Args) -> Expr:
        var, var2 = _variables(args, two)
        more = call(at, "_+_", _accu(at), literal(at, 1))
        fold = Fold(
            "exists_one",
            target,
            var,
            var2,
            ACCUMULATOR,
            init=literal(at, 0),
            condition=literal(at, True),
            step=call(at, "_?_:_", args[-1], more, _accu(at)),
            result=call(at, "_==_", _accu(at), literal(at, 1)),
        )
        return make_fold(at, fold)

    return {"all": all_, "exists": exists}.get(name, exists_one)


def _collect(  # noqa: PLR0917 - the parts of one comprehension
    at: int, target: Expr, variables: tuple[str, str], init: Expr, step: Expr, keep: Expr | None
) -> Expr:
    if keep is not None:
        step = call(at, "_?_:_", keep, step, _accu(at))
    fold = Fold(
        init.kind,
        target,
        *variables,
        ACCUMULATOR,
        init=init,
        condition=literal(at, True),
        step=step,
        result=_accu(at),
    )
    return make_fold(at, fold)


def _append(at: int, item: Expr) -> Expr:
    return call(at, "_+_", _accu(at), Expr("list", at, args=(item,)))


def _map(at: int, target: Expr, args: _Args) -> Expr:
    variables = _variable(args[0], "argument is not an identifier"), ""
    keep = args[1] if len(args) == 3 else None
    return _collect(at, target, variables, Expr("list", at), _append(at, args[-1]), keep)


def _filter(at: int, target: Expr, args: _Args) -> Expr:
    variables = _variable(args[0], "argument is not an identifier"), ""
    return _collect(at, target, variables, Expr("list", at), _append(at, args[0]), args[1])


def _transform_list(at: int, target: Expr, args: _Args) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    return _collect(at, target, variables, Expr("list", at), _append(at, args[-1]), keep)


def _transform_map(at: int, target: Expr, args: _Args) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    step = call(at, "cel.@mapInsert", _accu(at), Expr("ident", at, name=variables[0]), args[-1])
    return _collect(at, target, variables, Expr("map", at), step, keep)


def _transform_map_entry(at: int, target: Expr, args: _Args) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    step = call(at, "cel.@mapInsert", _accu(at), args[-1])
    return _collect(at, target, variables, Expr("map", at), step, keep)


def _bind_name(at: int, name: str, value: Expr, result: Expr) -> Expr:
    fold = Fold(
        "bind",
        Expr("list", at),
        UNUSED,
        "",
        name,
        init=value,
        condition=literal(at, False),
        step=Expr("ident", at, name=name),
        result=result,
    )
    return make_fold(at, fold)


def _bind(at: int, target: Expr, args: _Args) -> Expr | None:
    if target.kind != "ident" or target.name != "cel":
        return None
    variable, value, result = args
    if variable.kind != "ident":
        raise SelectorSyntaxError("cel.bind() variable names must be simple identifiers", variable.position)
    return _bind_name(at, variable.name, value, result)


def _opt_map(flat: bool) -> Callable[[int, Expr, tuple[Expr, ...]], Expr]:
    def expander(at: int, target: Expr, args: _Args) -> Expr:
        variable, result = args
        if variable.kind != "ident":
            raise SelectorSyntaxError("optMap() variable name must be a simple identifier", variable.position)
        twin = _copy(target)
        value = call(at, "value", twin, member=True)
        some = _bind_name(at, variable.name, value, result)
        if not flat:
            some = call(at, "optional.of", some)
        present = call(at, "hasValue", target, member=True)
        none = call(at, "optional.none")
        return call(at, "_?_:_", present, some, none)

    return expander


def _sort_by(at: int, target: Expr, args: _Args) -> Expr:
    if target.kind not in ("list", "select", "ident", "fold", "call"):
        raise SelectorSyntaxError(
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression", at
        )
    mapped = Expr("ident", at, name=_SORT_INPUT)
    keys = _map(at, mapped, args)
    sorted_ = Expr("ident", at, name=_SORT_INPUT)
    by = call(at, "@sortByAssociatedKeys", sorted_, keys, member=True)
    return _bind_name(at, _SORT_INPUT, target, by)


def _copy(root: Expr) -> Expr:
    """Copy a tree, unless it has become so large that only an attack explains it."""
    count = 0

    def copy(node: Expr) -> Expr:
        nonlocal count
        count += 1
        if count > MAX_NODES // 2:
            raise SelectorSyntaxError("the expression becomes too large when its macros are expanded", root.position)
        args = tuple(copy(arg) for arg in node.args)
        twin = Expr(node.kind, node.position, name=node.name, args=args)
        twin.value = node.value
        twin.member = node.member
        twin.optional = node.optional
        if node.fold is not None:
            fold = node.fold
            parts = (copy(part) for part in children(node))
            range_, init, condition, step, result = parts
            twin.fold = Fold(fold.macro, range_, fold.var, fold.var2, fold.accu, init, condition, step, result)
        return twin

    return copy(root)


_MACROS: dict[tuple[str, int], Callable[[int, Expr, tuple[Expr, ...]], Expr | None]] = {
    **{(name, count): _quantifier(name, count == 3) for name in ("all", "exists", "exists_one") for count in (2, 3)},
    ("existsOne", 3): _quantifier("exists_one", two=True),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    **{(name, count): expander
       for name, expander in (("transformList", _transform_list), ("transformMap", _transform_map), ("transformMapEntry", _transform_map_entry))
       for count in (3, 4)},
    ("bind", 3): _bind,
    ("optMap", 2): _opt_map(flat=False),
    ("optFlatMap", 2): _opt_map(flat=True),
    ("sortBy", 2): _sort_by,
}  # fmt: skip
