"""The macros: `has`, `all`, `exists`, `map`, `cel.bind`, … as comprehensions (cel-go parser/macro.go, ext, cel/library.go).

An expansion must have the very shape it has in Go, because costs are counted on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel.syntax import MAX_NODES, Expr, Fold, call, children, folded, literal
from dra.errors import SelectorSyntaxError

if TYPE_CHECKING:
    from collections.abc import Callable

ACCUMULATOR = "@result"
UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"


def expand(position: int, name: str, target: Expr | None, args: tuple[Expr, ...]) -> Expr | None:
    """Expand a call if it is a macro; None leaves it a call."""
    if target is None:
        return _has(args[0]) if name == "has" and len(args) == 1 else None
    macro = _MACROS.get((name, len(args)))
    return macro(position, target, args) if macro else None


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


def _variables(args: tuple[Expr, ...], two: bool) -> tuple[str, str]:
    if not two:
        return _variable(args[0]), ""
    first, second = _variable(args[0]), _variable(args[1])
    if first == second:
        raise SelectorSyntaxError(f"duplicate variable name: {first}", args[1].position)
    return first, second


def _quantifier(name: str, two: bool) -> Callable[[int, Expr, tuple[Expr, ...]], Expr]:
    def all_(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
        var, var2 = _variables(args, two)
        condition = call(at, "@not_strictly_false", _accu(at))
        step = call(at, "_&&_", _accu(at), args[-1])
        return folded(at, Fold("all", target, var, var2, ACCUMULATOR, literal(at, True), condition, step, _accu(at)))

    def exists(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
        var, var2 = _variables(args, two)
        condition = call(at, "@not_strictly_false", call(at, "!_", _accu(at)))
        step = call(at, "_||_", _accu(at), args[-1])
        return folded(
            at, Fold("exists", target, var, var2, ACCUMULATOR, literal(at, False), condition, step, _accu(at))
        )

    def exists_one(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
        var, var2 = _variables(args, two)
        more = call(at, "_+_", _accu(at), literal(at, 1))
        step = call(at, "_?_:_", args[-1], more, _accu(at))
        result = call(at, "_==_", _accu(at), literal(at, 1))
        return folded(
            at, Fold("exists_one", target, var, var2, ACCUMULATOR, literal(at, 0), literal(at, True), step, result)
        )

    return {"all": all_, "exists": exists}.get(name, exists_one)


def _collected(  # noqa: PLR0917 - the parts of one comprehension
    at: int, target: Expr, variables: tuple[str, str], init: Expr, step: Expr, keep: Expr | None
) -> Expr:
    if keep is not None:
        step = call(at, "_?_:_", keep, step, _accu(at))
    return folded(at, Fold(init.kind, target, *variables, ACCUMULATOR, init, literal(at, True), step, _accu(at)))


def _listed(at: int, item: Expr) -> Expr:
    return call(at, "_+_", _accu(at), Expr("list", at, args=(item,)))


def _map(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    variable = _variable(args[0], "argument is not an identifier")
    keep = args[1] if len(args) == 3 else None
    return _collected(at, target, (variable, ""), Expr("list", at), _listed(at, args[-1]), keep)


def _filter(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    variable = _variable(args[0], "argument is not an identifier")
    return _collected(at, target, (variable, ""), Expr("list", at), _listed(at, args[0]), args[1])


def _transform_list(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    return _collected(at, target, variables, Expr("list", at), _listed(at, args[-1]), keep)


def _transform_map(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    step = call(at, "cel.@mapInsert", _accu(at), Expr("ident", at, name=variables[0]), args[-1])
    return _collected(at, target, variables, Expr("map", at), step, keep)


def _transform_map_entry(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    variables = _variables(args, two=True)
    keep = args[2] if len(args) == 4 else None
    step = call(at, "cel.@mapInsert", _accu(at), args[-1])
    return _collected(at, target, variables, Expr("map", at), step, keep)


def _bound(at: int, name: str, value: Expr, result: Expr) -> Expr:
    empty = Expr("list", at)
    return folded(
        at, Fold("bind", empty, UNUSED, "", name, value, literal(at, False), Expr("ident", at, name=name), result)
    )


def _bind(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr | None:
    if target.kind != "ident" or target.name != "cel":
        return None
    if args[0].kind != "ident":
        raise SelectorSyntaxError("cel.bind() variable names must be simple identifiers", args[0].position)
    return _bound(at, args[0].name, args[1], args[2])


def _opt_map(flat: bool) -> Callable[[int, Expr, tuple[Expr, ...]], Expr]:
    def expander(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
        if args[0].kind != "ident":
            raise SelectorSyntaxError("optMap() variable name must be a simple identifier", args[0].position)
        value = call(at, "value", _copied(target), member=True)
        bound = _bound(at, args[0].name, value, args[1])
        some = bound if flat else call(at, "optional.of", bound)
        return call(at, "_?_:_", call(at, "hasValue", target, member=True), some, call(at, "optional.none"))

    return expander


def _sort_by(at: int, target: Expr, args: tuple[Expr, ...]) -> Expr:
    if target.kind not in ("list", "select", "ident", "fold", "call"):
        raise SelectorSyntaxError(
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression", at
        )
    keys = _map(at, Expr("ident", at, name=_SORT_INPUT), args)
    by = call(at, "@sortByAssociatedKeys", Expr("ident", at, name=_SORT_INPUT), keys, member=True)
    return _bound(at, _SORT_INPUT, target, by)


def _copied(root: Expr) -> Expr:
    """Copy a tree, unless it has become so large that only an attack explains it."""
    count = 0

    def copy(node: Expr) -> Expr:
        nonlocal count
        count += 1
        if count > MAX_NODES // 2:
            raise SelectorSyntaxError("the expression becomes too large when its macros are expanded", root.position)
        twin = Expr(node.kind, node.position, name=node.name, args=tuple(copy(arg) for arg in node.args))
        twin.value, twin.member, twin.optional = node.value, node.member, node.optional
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
