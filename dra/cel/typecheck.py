"""The type checker sets the type and the matching overloads of every node (cel-go checker/checker.go).

It then checks literals as Kubernetes does (cel/validator.go, ext/formatting.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cel import types as t
from dra.cel.library.regexes import PatternError, compile_pattern
from dra.cel.library.standard import TYPE_NAMES
from dra.cel.library.text_format import Clause, clauses
from dra.cel.tree import children
from dra.cel.values import Uint
from dra.errors import SelectorRunError, SelectorTypeError

if TYPE_CHECKING:
    from dra.budget import Budget
    from dra.cel.environment import Environment
    from dra.cel.tree import Expr
    from dra.cel.types import Type

_LITERALS: dict[type, Type] = {
    bool: t.BOOL, int: t.INT, Uint: t.UINT, float: t.DOUBLE, str: t.STRING, bytes: t.BYTES, type(None): t.NULL,
}  # fmt: skip


def check_types(root: Expr, environment: Environment, budget: Budget | None = None) -> Type:
    """Set the types in a tree, and return the type of the root. Compiling patterns is charged to the budget."""
    checker = _Checker(environment)
    checker.node(root)
    pending = [root]
    while pending:
        node = pending.pop()
        node.type = checker.bindings.substitute(node.type, finish=True)
        pending += children(node)
    inside = [(root, False)]  # nodes, and whether they are inside of a call of format()
    while inside:
        node, in_format = inside.pop()
        if node.kind == "call":
            _check_call(node, environment, budget)
            in_format = in_format or node.name == "format"
        elif node.kind in ("list", "map") and not in_format:
            _check_homogeneous(node)
        inside += [(child, in_format) for child in children(node)]
    return root.type


def check_output(result: Type, environment: Environment, *, derived: bool) -> None:
    """Raise for a type that a selector or derived attribute cannot have."""
    if not derived:
        if result not in (t.BOOL, environment.attribute):
            raise SelectorTypeError(f"must evaluate to bool or the unknown type, not {result}")
        return
    scalars = (t.BOOL, t.INT, t.STRING, t.ANY, t.DYN, t.SEMVER)
    element = result.params[0] if environment.lists and result.kind == "list" else result
    if element not in scalars:
        lists = " or a list of these scalars" if environment.lists else ""
        raise SelectorTypeError(
            f"must evaluate to a primitive scalar (string, integer, boolean, semver){lists}, not {result}"
        )


class _Checker:
    def __init__(self, environment: Environment) -> None:
        self._env = environment
        self._scopes: list[dict[str, Type]] = []
        self.bindings = t.Bindings()

    def node(self, node: Expr) -> Type:
        node.overloads = ()
        node.type = getattr(self, f"_{node.kind}")(node)
        return node.type

    def _literal(self, node: Expr) -> Type:
        return _LITERALS[type(node.value)]

    def _local(self, name: str) -> Type | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _global(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        if name in self._env.variables:
            return self._env.variables[name]
        return t.type_of(TYPE_NAMES[name]) if name in TYPE_NAMES else None

    def _ident(self, node: Expr) -> Type:
        type_ = self._local(node.name)
        if type_ is None:
            type_ = self._global(node.name)
            if type_ is None:
                raise SelectorTypeError(f"undeclared reference to '{node.name}' (in container '')", node.position)
            node.name = "." + node.name.removeprefix(".")
        return type_

    def _qualified_name(self, node: Expr) -> str | None:
        """Return `a.b.c` if the node consists of names only."""
        names: list[str] = []
        while node.kind == "select":
            names.append(node.name)
            node = node.args[0]
        if node.kind != "ident":
            return None
        return ".".join([node.name, *reversed(names)])

    def _select(self, node: Expr) -> Type:
        qualified = self._qualified_name(node)
        if qualified is not None:
            type_ = self._global(qualified) if self._local(qualified.partition(".")[0]) is None else None
            if type_ is not None:
                node.kind = "ident"
                node.name = "." + qualified.removeprefix(".")
                node.args = ()
                return type_
        return self.bindings.substitute(self._field(node, node.args[0], node.name, optional=False))

    def _has(self, node: Expr) -> Type:
        self._field(node, node.args[0], node.name, optional=False)
        return t.BOOL

    def _field(self, node: Expr, operand: Expr, field: str, *, optional: bool) -> Type:
        target, was_optional = t.unwrap(self.bindings.substitute(self.node(operand)))
        if target.kind == "map":
            result = target.params[1]
        elif target == t.DEVICE:
            if field not in self._env.fields:
                raise SelectorTypeError(f"undefined field '{field}'", node.position)
            result = self._env.fields[field]
        elif target.kind == "struct":
            raise SelectorTypeError(f"unexpected failed resolution of '{target}': it has no fields", node.position)
        else:
            if target.kind == "param":
                self.bindings.assign(t.DYN, target)
            elif not t.is_dyn(target):
                raise SelectorTypeError(f"type '{target}' does not support field selection", node.position)
            result = t.DYN
        return t.optional_of(result) if was_optional or optional else result

    def _call(self, node: Expr) -> Type:
        if node.name == "_?._":
            node.overloads = ("select_optional_field",)
            self.node(node.args[1])
            field = node.args[1].value
            assert isinstance(field, str)
            return self.bindings.substitute(self._field(node, node.args[0], field, optional=True))
        for arg in node.args[node.member :]:
            self.node(arg)
        if node.member:
            # `sets.contains(…)` is a function with a dot in its name, not a method of a variable `sets`.
            prefix = self._qualified_name(node.args[0])
            name = f"{prefix.removeprefix('.')}.{node.name}" if prefix is not None else ""
            if name in self._env.functions:
                node.name, node.args, node.member = name, node.args[1:], False
            else:
                self.node(node.args[0])
        overloads = self._env.functions.get(node.name.removeprefix("."))
        if overloads is None:
            raise SelectorTypeError(f"undeclared reference to '{node.name}' (in container '')", node.position)
        node.name = node.name.removeprefix(".")
        argument_types = tuple(arg.type for arg in node.args)
        if node.name in ("_&&_", "_||_"):
            for arg in node.args:
                if not self.bindings.assign(arg.type, t.BOOL):
                    raise self._mismatch(arg, t.BOOL, arg.type)
            node.overloads = (overloads[0].id,)
            return t.BOOL
        result: Type | None = None
        fitting: list[str] = []
        for overload in overloads:
            if overload.method != node.member:
                continue
            args, candidate = overload.args, overload.result
            if overload.params:
                fresh = {param: self.bindings.fresh() for param in overload.params}
                args = tuple([_replace(arg, fresh) for arg in args])
                candidate = _replace(candidate, fresh)
            if not self.bindings.assign_all(argument_types, args):
                continue
            fitting.append(overload.id)
            candidate = self.bindings.substitute(candidate)
            if result is None:
                result = candidate
            elif not t.is_dyn(result) and candidate != result:
                result = t.DYN
        if result is None:
            argument_texts = [str(self.bindings.substitute(arg, finish=True)) for arg in argument_types]
            applied = (
                f"{argument_texts[0]}.({', '.join(argument_texts[1:])})"
                if node.member
                else f"({', '.join(argument_texts)})"
            )
            raise SelectorTypeError(
                f"found no matching overload for '{node.name}' applied to '{applied}'", node.position
            )
        node.overloads = tuple(fitting)
        return result

    def _mismatch(self, node: Expr, expected: Type, actual: Type) -> SelectorTypeError:
        expected, actual = (self.bindings.substitute(type_, finish=True) for type_ in (expected, actual))
        return SelectorTypeError(f"expected type '{expected}' but found '{actual}'", node.position)

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        if not self.bindings.assign(previous, current):
            return t.DYN  # outside of format(), _check_homogeneous refuses members of different types
        return previous if t.less_specific(previous, current) else current

    def _element(self, node: Expr, *, optional: bool) -> Type:
        type_ = self.node(node)
        if not optional:
            return type_
        inner, is_optional = t.unwrap(type_)
        if not is_optional and not t.is_dyn(inner):
            raise self._mismatch(node, t.optional_of(inner), inner)
        return inner

    def _list(self, node: Expr) -> Type:
        element: Type | None = None
        for i, arg in enumerate(node.args):
            element = self._join(element, self._element(arg, optional=i in node.optional))
        return t.list_of(element or self.bindings.fresh())

    def _map(self, node: Expr) -> Type:
        key: Type | None = None
        value: Type | None = None
        for i in range(0, len(node.args), 2):
            key = self._join(key, self.node(node.args[i]))
            value = self._join(value, self._element(node.args[i + 1], optional=i in node.optional))
        return t.map_of(key or self.bindings.fresh(), value or self.bindings.fresh())

    def _fold(self, node: Expr) -> Type:
        fold = node.fold
        assert fold is not None
        range_type = self.node(fold.range)
        accu = self.node(fold.init)
        range_type = self.bindings.substitute(range_type)
        if range_type.kind == "list":
            first, second = (t.INT if fold.var2 else range_type.params[0]), range_type.params[0]
        elif range_type.kind == "map":
            first, second = range_type.params[0], range_type.params[1]
        elif range_type.kind in ("dyn", "error", "param"):
            self.bindings.assign(t.DYN, range_type)
            first = second = t.DYN
        else:
            raise SelectorTypeError(
                f"expression of type '{range_type}' cannot be range of a comprehension (must be list, map, or dynamic)",
                fold.range.position,
            )
        variables = {fold.var: first}
        if fold.var2:
            variables[fold.var2] = second
        self._scopes.append({fold.accu: accu})
        self._scopes.append(variables)
        self._expect(fold.condition, t.BOOL)
        self._expect(fold.step, accu)
        self._scopes.pop()
        result = self.node(fold.result)
        self._scopes.pop()
        return self.bindings.substitute(result)

    def _expect(self, node: Expr, expected: Type) -> None:
        type_ = self.node(node)
        if not self.bindings.assign(expected, type_):
            raise self._mismatch(node, expected, type_)


def _replace(type_: Type, params: dict[Type, Type]) -> Type:
    if type_.kind == "param":
        return params[type_]
    if not type_.params:
        return type_
    return t.Type(type_.kind, type_.name, tuple(_replace(param, params) for param in type_.params))


# ---- Literals ------------------------------------------------------------------------------------------------------


def _check_call(node: Expr, environment: Environment, budget: Budget | None) -> None:
    name = node.name
    if name in ("matches", "find", "findAll") and len(node.args) > 1:
        _check_pattern(node.args[1], budget)
    first = node.args[node.member] if len(node.args) > node.member else None
    if first is not None and first.kind == "literal":
        if name == "matches":
            # In the form matches(text, pattern), Kubernetes checks not only the pattern but also the text as a pattern.
            _check_pattern(first, budget)
        elif name in ("duration", "timestamp") and not node.member:
            work = next(overload.work for overload in environment.functions[name] if overload.args == (first.type,))
            assert work is not None
            try:
                work(first.value)
            except SelectorRunError:
                raise SelectorTypeError(f"invalid {name} argument", first.position) from None
    elif name == "format" and node.member and first is not None and first.kind == "list":
        template = node.args[0].value
        if isinstance(template, str):
            _check_format(node, template, first)


def _check_pattern(node: Expr, budget: Budget | None) -> None:
    if isinstance(node.value, str) and node.kind == "literal":
        try:
            compile_pattern(node.value, budget)
        except PatternError as error:
            raise SelectorTypeError(f"invalid matches argument: {error}", node.position) from None


def _check_homogeneous(node: Expr) -> None:
    is_list = node.kind == "list"
    stride = 1 if is_list else 2  # all keys of a map must have one type, and all values of a map another
    for start in range(stride):
        expected: Type | None = None
        for index in range(start, len(node.args), stride):
            arg = node.args[index]
            type_ = arg.type
            if (is_list or start == 1) and index - start in node.optional:
                type_ = t.unwrap(type_)[0]
            expected = expected or type_
            if not t.equivalent(expected, type_):
                raise SelectorTypeError(f"expected type '{expected}' but found '{type_}'", arg.position)


_FORMATTED = {
    "d": (t.INT, t.UINT), "f": (t.DOUBLE, t.STRING), "e": (t.DOUBLE, t.STRING), "b": (t.INT, t.UINT, t.BOOL),
    "x": (t.INT, t.UINT, t.STRING, t.BYTES), "X": (t.INT, t.UINT, t.STRING, t.BYTES), "o": (t.INT, t.UINT),
}  # fmt: skip
_TEXTUAL = (t.INT, t.UINT, t.DOUBLE, t.BOOL, t.STRING, t.TIMESTAMP, t.BYTES, t.DURATION, t.NULL)


def _check_format(node: Expr, template: str, args: Expr) -> None:
    argument_count = 0
    try:
        for part in clauses(template, len(args.args)):
            if isinstance(part, Clause):
                arg = args.args[argument_count]
                argument_count += 1
                if part.letter == "s":
                    _check_textual(arg)
                elif arg.type != t.DYN and arg.type not in _FORMATTED[part.letter]:
                    message = f"error during formatting: %{part.letter} does not take {arg.type}"
                    raise SelectorTypeError(message, arg.position)
    except SelectorRunError as error:
        raise SelectorTypeError(error.message, node.position) from None
    if argument_count < len(args.args):
        raise SelectorTypeError(
            f"too many arguments supplied to string.format (expected {argument_count}, got {len(args.args)})",
            node.position,
        )


def _check_textual(arg: Expr) -> None:
    if arg.type != t.DYN and arg.type.kind not in ("list", "map", "type") and arg.type not in _TEXTUAL:
        raise SelectorTypeError(f"error during formatting: %s does not take {arg.type}", arg.position)
    if arg.kind in ("list", "map"):
        for part in arg.args:
            _check_textual(part)
