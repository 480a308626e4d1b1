"""From a checked tree to nested Python closures: the fast way to evaluate (cel-go interpreter).

A closure takes the frame and returns a value, or raises SelectorRunError. The frame is the view's five slots (driver,
allowMultipleAllocations, attributes, capacity, the whole device), then one for each variable that a comprehension or `cel.bind`
declares. Nothing is counted here: only what is sure to be short and small is evaluated this way. `dra.cel.evaluation.metered` counts.
"""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from dra.cel import types as t
from dra.cel.library.lists import COMPARABLE
from dra.cel.library.named_formats import Format
from dra.cel.library.networks import Address, Network
from dra.cel.library.regexes import PatternError, compile_pattern
from dra.cel.library.regexes import work as pattern_work
from dra.cel.library.standard import TYPE_NAMES, has, index, select_optional
from dra.cel.library.urls import Url
from dra.cel.syntax import children
from dra.cel.values import (
    MISSING,
    NONE,
    Duration,
    Fatal,
    Optional,
    Sum,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    as_key,
    contains,
    differ,
    equal,
    find,
    keys_of,
    no_such_overload,
    require_hashable,
    type_name,
    weigh,
)
from dra.errors import CostExceeded, NoSuchKey, SelectorRunError, SelectorTypeError
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dra.budget import Budget
    from dra.cel.environment import Environment
    from dra.cel.signatures import Overload, Work
    from dra.cel.syntax import Expr, Fold
    from dra.cel.types import Type

    Closure = Callable[["Frame"], Value]

Frame = Any  # a tuple or list of values; see above

DRIVER, MULTIPLE, ATTRIBUTES, CAPACITY, DEVICE = range(5)
_FIELDS = {"driver": DRIVER, "allowMultipleAllocations": MULTIPLE, "attributes": ATTRIBUTES, "capacity": CAPACITY}
UNSET = object()
_PATTERN_TEXT = 64  # how long a text is that a pattern is looked for in: attributes are no longer
_FOLDED = 256  # members or characters of a value that is computed when compiling
CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))


class Compiler:
    """Builds the closures of one expression; patterns are compiled at the expense of the budget."""

    first_variable = DEVICE + 1

    def __init__(self, environment: Environment, budget: Budget | None = None) -> None:
        self._functions = environment.functions
        self._budget = budget
        self.pattern_work = 0  # steps that searching for the patterns which are written out may take
        # A name is a slot of the frame, or a closure where its value may not be there yet.
        self._scope: dict[str, int | Closure] = {}
        self._sound_names: dict[str, bool] = {}
        self._constants: dict[int, Value] = {}
        self.variables = 0

    def closure(self, node: Expr) -> Closure:
        """Compile one node."""
        value = self.constant(node)
        if value is not MISSING:
            return lambda _: value
        made: Closure = getattr(self, f"_{node.kind}")(node)
        return made

    # Constants

    def constant(self, node: Expr) -> Value:
        """Return the value of what does not depend on anything, or MISSING."""
        value = self._constants.get(id(node), UNSET)
        if value is UNSET:
            value = self._constants[id(node)] = self._fold_constant(node)
        return value

    def _fold_constant(self, node: Expr) -> Value:
        value = self.plan(node)
        if value is not MISSING or node.kind != "call" or node.name in _NOT_FOLDED:
            return value
        args = [self.constant(arg) for arg in node.args]
        if any(arg is MISSING or not _is_small(arg) for arg in args):
            return MISSING
        try:
            if node.name in ("_==_", "_!=_", "_[_]", "@in"):
                value = self._special(node)(())
            else:
                value = self._work(node)(*args)
        except (SelectorRunError, CostExceeded, Fatal):
            return MISSING  # it fails when, and if, it is reached
        return value if _is_small(value) else MISSING

    def plan(self, node: Expr) -> Value:
        """Return the value of what Go computes before it evaluates anything, or MISSING: that costs nothing at run time."""
        kind = node.kind
        if kind == "literal":
            return node.value
        if kind == "ident":
            type_ = TYPE_NAMES.get(node.name.removeprefix(".")) if node.name.startswith(".") else None
            return MISSING if type_ is None else TypeValue(type_.name)
        if kind in ("list", "map"):
            values = [self.plan(arg) for arg in node.args]
            if any(value is MISSING for value in values):
                return MISSING
            return self._build(node, values)
        if kind == "call" and node.overloads == ("in_list",):
            return False if self.plan(node.args[1]) == [] else MISSING
        if kind == "call" and node.name in CONVERSIONS and len(node.args) == 1:
            value = self.plan(node.args[0])
            if value is not MISSING:
                return self._convert(node, value)
        return MISSING

    def _build(self, node: Expr, values: list[Value]) -> Value:
        try:
            return make_list(values, node.optional) if node.kind == "list" else make_map(values, node.optional)
        except (SelectorRunError, Fatal) as error:
            # A constant that cannot be built: Kubernetes' compiler gives up, or panics.
            raise SelectorTypeError(f"program instantiation failed: {error}", node.position) from None

    def _convert(self, node: Expr, value: Value) -> Value:
        try:
            return self._work(node)(value)
        except SelectorRunError as error:
            raise SelectorTypeError(f"program instantiation failed: {error.message}", node.position) from None

    # Names

    def _ident(self, node: Expr) -> Closure:
        if node.name.startswith("."):
            return lambda frame: frame[DEVICE]
        return self._read_name(node.name)

    def _read_name(self, name: str) -> Closure:
        known = self._scope[name]
        return known if callable(known) else itemgetter(known)

    def _variable(self) -> int:
        self.variables += 1
        return self.first_variable - 1 + self.variables

    def _with(self, names: dict[str, int | Closure], node: Expr, source: Expr) -> Closure:
        """Compile a node in which some more names mean something, namely the source or parts of it."""
        outer = self._scope
        outer_sound = self._sound_names
        sound = self._sound(source)
        self._scope = outer | names
        self._sound_names = outer_sound | dict.fromkeys(names, sound)
        made = self.closure(node)
        self._scope = outer
        self._sound_names = outer_sound
        return made

    # Fields

    def _device_slot(self, node: Expr) -> int | None:
        """The frame slot of `device.attributes` and its like."""
        if node.kind == "select" and node.args[0].kind == "ident" and node.args[0].name == ".device":
            return _FIELDS.get(node.name)
        return None

    def _domain(self, node: Expr) -> tuple[int, str] | None:
        """The slot and domain of `device.attributes["domain"]`."""
        if node.kind != "call" or node.name != "_[_]":
            return None
        slot = self._device_slot(node.args[0])
        if slot not in (ATTRIBUTES, CAPACITY):
            return None
        domain = self.constant(node.args[1])
        return (slot, domain) if type(domain) is str else None

    def _select(self, node: Expr) -> Closure:
        field = node.name
        slot = self._device_slot(node)
        if slot is not None:
            return lambda frame: frame[slot]
        known = self._domain(node.args[0])
        if known is not None:
            return _attribute(*known, field)
        operand = self.closure(node.args[0])

        def select(frame: Frame) -> Value:
            value = operand(frame)
            if type(value) is dict and field in value:
                return value[field]
            return select_optional(value, field) if type(value) is Optional else index(value, field)

        return select

    def _has(self, node: Expr) -> Closure:
        field = node.name
        known = self._domain(node.args[0])
        if known is not None:
            slot, domain = known
            return lambda frame: field in frame[slot][domain]
        operand = self.closure(node.args[0])
        return lambda frame: has(operand(frame), field)

    def _index(self, node: Expr) -> Closure:
        known = self._domain(node)
        if known is not None:
            slot, domain = known
            return lambda frame: frame[slot][domain]
        whole, part = node.args
        inner = self._domain(whole)
        name = self.constant(part)
        if inner is not None and type(name) is str:
            return _attribute(*inner, name)
        operand = self.closure(whole)
        key = self.closure(part)

        def at(frame: Frame) -> Value:
            value = operand(frame)
            if type(value) is Optional:
                return select_optional(value, key(frame))
            return index(value, key(frame))

        return at

    def _optional(self, node: Expr) -> Closure:
        whole, part = node.args
        key = self.constant(part)
        known = self._domain(whole)
        if known is not None and type(key) is str:
            slot, domain = known

            def lookup(frame: Frame) -> Value:
                value = frame[slot][domain].get(key, MISSING)
                return NONE if value is MISSING else Optional(value)

            return lookup
        operand = self.closure(whole)
        index_ = self.closure(part)
        return lambda frame: select_optional(operand(frame), index_(frame))

    # Calls

    def _call(self, node: Expr) -> Closure:
        if node.name in _SPECIAL:
            return self._special(node)
        if node.name in ("matches", "find", "findAll"):
            self._check_pattern(node)
        work = self._work(node)
        args = self._operands(node)
        if len(args) == 1:
            (one,) = args
            return lambda frame: work(one(frame))
        if len(args) == 2:
            left, right = args
            value = self.constant(node.args[1])
            if value is not MISSING:
                return lambda frame: work(left(frame), value)
            return lambda frame: work(left(frame), right(frame))
        return lambda frame: work(*[arg(frame) for arg in args])

    def _arguments(self, node: Expr) -> list[Closure]:
        args = [self.closure(arg) for arg in node.args]
        only = node.overloads[0] if len(node.overloads) == 1 else ""
        panics = _PANICKING.get(only)
        if panics is not None:
            position, kind = panics
            args[position] = _or_fatal(args[position], kind)
        return args

    def _operands(self, node: Expr) -> list[Closure]:
        args = self._arguments(node)
        if len(args) == 2 and _may_panic(node):
            args[0] = _then(args[0], args[1])
        return args

    def _special(self, node: Expr) -> Closure:
        made: Closure = getattr(self, _SPECIAL[node.name])(node)
        return made

    def _check_pattern(self, node: Expr) -> None:
        pattern = self.plan(node.args[1])
        if type(pattern) is str:
            try:
                self.pattern_work += pattern_work(compile_pattern(pattern, self._budget), _PATTERN_TEXT)
            except PatternError as error:
                raise SelectorTypeError(f"program instantiation failed: {error}", node.args[1].position) from None

    def _work(self, node: Expr) -> Work:
        """The Python function behind a call, guarded where the types are only known at run time."""
        overloads = self._functions[node.name]
        same_shape = [overload for overload in overloads if overload.method == node.member]
        fitting = [overload for overload in same_shape if overload.id in node.overloads]
        first = fitting[0]
        work = first.work
        assert work is not None
        if first.total and all(overload.work is work for overload in fitting):
            return work
        if len(fitting) == 1:
            guards: list[tuple[int, Callable[[Value], bool]]] = []
            for at, type_ in enumerate(first.args):
                if not self._surely(node.args[at], type_):
                    guard = _guard(type_)
                    guards.append((at, guard))
            if not guards:
                return work
            return _guard_all(node.name, work, guards)
        count = len(node.args)
        possible = [overload for overload in overloads if len(overload.args) == count]
        return _dispatch(node.name, possible)

    def _surely(self, node: Expr, wanted: Type) -> bool:
        """Whether the value will have the type without looking at it."""
        return wanted.kind in ("dyn", "any", "param") or (node.type == wanted and self._sound(node))

    def _sound(self, node: Expr) -> bool:
        """Whether the static type is a fact: what was inferred from a value of unknown type is only a hope."""
        if t.is_dyn(node.type):
            return False
        name = node.name
        if node.kind == "ident":
            return name.startswith(".") or self._sound_names.get(name, False)
        if node.kind == "call":
            functions = self._functions.get(name, ())
            chosen = [overload for overload in functions if overload.id in node.overloads]
            if not any(overload.params for overload in chosen):
                return True
        return node.kind != "fold" and all(map(self._sound, node.args))

    def _equals(self, node: Expr) -> Closure:
        left, right = node.args
        text = self.constant(right)
        if type(text) is str:
            operand = self.closure(left)
            return _equals_text(operand, text)
        first, second = self._operands(node)
        simple = left.type == right.type and left.type in _SIMPLE
        if simple and self._sound(left) and self._sound(right):
            return lambda frame: first(frame) == second(frame)
        return lambda frame: equal(first(frame), second(frame))

    def _not_equals(self, node: Expr) -> Closure:
        first, second = self.closure(node.args[0]), self.closure(node.args[1])

        return lambda frame: differ(first(frame), second(frame))

    def _in(self, node: Expr) -> Closure:
        item = self.closure(node.args[0])
        values = self.plan(node.args[1])
        if node.overloads == ("in_list",) and values is not MISSING:
            member = membership(values)
            if member is not None:
                return lambda frame: member(item(frame))
        item, container = self._operands(node)

        def within(frame: Frame) -> bool:
            wanted = item(frame)
            return contains(container(frame), wanted)

        return within

    def _conditional(self, node: Expr) -> Closure:
        condition, yes, no = map(self.closure, node.args)

        def choose(frame: Frame) -> Value:
            value = condition(frame)
            if value is True:
                return yes(frame)
            if value is False:
                return no(frame)
            raise no_such_overload("_?_:_")

        return choose

    def _and(self, node: Expr) -> Closure:
        return _logical([self.closure(arg) for arg in node.args], stop=False)

    def _or(self, node: Expr) -> Closure:
        return _logical([self.closure(arg) for arg in node.args], stop=True)

    def _or_optional(self, node: Expr) -> Closure:
        first, second = self.closure(node.args[0]), self.closure(node.args[1])

        def either(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not Optional:
                raise no_such_overload("or")
            return value if value.present else second(frame)

        return either

    def _or_value(self, node: Expr) -> Closure:
        first, default = self.closure(node.args[0]), self.closure(node.args[1])

        def value_or(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not Optional:
                raise no_such_overload("orValue")
            return value.value if value.present else default(frame)

        return value_or

    # Lists and maps

    def _list(self, node: Expr) -> Closure:
        elements = [self.closure(arg) for arg in node.args]
        if node.optional:
            optional = node.optional
            return lambda frame: make_list([element(frame) for element in elements], optional)
        return lambda frame: [element(frame) for element in elements]

    def _map(self, node: Expr) -> Closure:
        parts = [self.closure(arg) for arg in node.args]
        optional = node.optional
        return lambda frame: make_map([part(frame) for part in parts], optional)

    # Comprehensions

    def _fold(self, node: Expr) -> Closure:
        fold = node.fold
        assert fold is not None
        macro = fold.macro
        if macro == "bind":
            return self._bind(fold)
        items = self.closure(fold.range)
        slot = self._variable()
        names: dict[str, int | Closure] = {fold.var: slot}
        slot2 = 0
        if fold.var2:
            slot2 = self._variable()
            names[fold.var2] = slot2

        def inside(part: Expr) -> Closure:
            return self._with(names, part, fold.range)

        step = fold.step
        if macro in ("all", "exists"):
            predicate = inside(step.args[1])
            return _quantify(items, slot, slot2, predicate, stop=macro == "exists")
        if macro == "exists_one":
            predicate = inside(step.args[0])
            return _exactly_one(items, slot, slot2, predicate)
        keep = None
        if step.name == "_?_:_":
            condition, step, _ = step.args
            keep = inside(condition)
        if macro == "list":
            (item,) = step.args[1].args
            return _collect(items, slot, slot2, keep, inside(item))
        entry = [inside(arg) for arg in step.args[1:]]
        return _gather(items, slot, slot2, keep, entry, self._work(step))

    def _bind(self, fold: Fold) -> Closure:
        slot = self._variable()
        value = self.closure(fold.init)

        def recall(frame: Frame) -> Value:
            known = frame[slot]
            if known is UNSET:
                known = frame[slot] = value(frame)
            return known

        result = self._with({fold.accu: recall}, fold.result, fold.init)

        def bind(frame: Frame) -> Value:
            frame[slot] = UNSET
            return result(frame)

        return bind


_SPECIAL = {
    "_==_": "_equals", "_!=_": "_not_equals", "_&&_": "_and", "_||_": "_or", "_?_:_": "_conditional", "_[_]": "_index", "_[?_]": "_optional",
    "_?._": "_optional", "@in": "_in", "or": "_or_optional", "orValue": "_or_value",
}  # fmt: skip
# What decides itself when it is reached, and what can make much of little.
_NOT_FOLDED = frozenset(
    (
        "_&&_",
        "_||_",
        "_?_:_",
        "or",
        "orValue",
        "_?._",
        "_[?_]",
        "lists.range",
        "matches",
        "find",
        "findAll",
        "replace",
        "format",
    )
)
# Go looks at these arguments once more when it counts costs, and panics if they are errors or of another type.
_PANICKING: dict[str, tuple[int, type]] = {
    "list_distinct": (0, list),
    "list_flatten_int": (1, int),
    **{f"list_{type_.name}_sort": (0, list) for type_ in COMPARABLE},
    **{f"list_{type_.name}_sortByAssociatedKeys": (1, list) for type_ in COMPARABLE},
}
_SIMPLE = frozenset((t.STRING, t.INT, t.BOOL, t.UINT))


def _is_small(value: Value) -> bool:
    """Whether a value may be computed, and kept, for everybody who uses the expression."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= _FOLDED
    return weigh(value, _FOLDED) < _FOLDED


# ---- Guards: what the static types leave open -----------------------------------------------------------------------

_CLASSES: dict[Type, tuple[type, ...]] = {
    t.BOOL: (bool,), t.INT: (int,), t.UINT: (Uint,), t.DOUBLE: (float,), t.STRING: (str,), t.BYTES: (bytes,), t.NULL: (type(None),),
    t.TIMESTAMP: (Timestamp,), t.DURATION: (Duration,), t.QUANTITY: (Quantity, Sum), t.SEMVER: (Version,), t.URL: (Url,), t.FORMAT: (Format,),
    t.IP: (Address,), t.CIDR: (Network,),
}  # fmt: skip


def _guard(type_: Type) -> Callable[[Value], bool]:
    """Whether a value can be passed as a type; of lists and maps Go looks at the first element only."""
    classes = _CLASSES.get(type_)
    if classes is not None:
        return lambda value: type(value) in classes
    if type_.kind == "list":
        element = _guard(type_.params[0])
        return lambda value: type(value) is list and (not value or element(value[0]))
    if type_.kind == "map":
        key, item = map(_guard, type_.params)

        def fits(value: Value) -> bool:
            if not isinstance(value, dict):
                return False
            if not value:
                return True
            first, its = next(iter(value.items()))
            return key(first) and item(its)

        return fits
    if type_.kind == "opaque":
        return lambda value: type(value) is Optional
    if type_.kind == "type":
        return lambda value: type(value) is TypeValue
    return lambda _: True


def _guard_all(name: str, work: Work, guards: list[tuple[int, Callable[[Value], bool]]]) -> Work:
    def run(*args: Value) -> Value:
        for i, fits in guards:
            if not fits(args[i]):
                raise no_such_overload(name)
        return work(*args)

    return run


def _dispatch(name: str, overloads: list[Overload]) -> Work:
    rows: list[tuple[list[Callable[[Value], bool]], Work]] = []
    for overload in overloads:
        if overload.work:
            guards = [_guard(type_) for type_ in overload.args]
            rows.append((guards, overload.work))

    def run(*args: Value) -> Value:
        for guards, work in rows:
            pairs = zip(guards, args, strict=True)
            if all(fits(arg) for fits, arg in pairs):
                return work(*args)
        raise no_such_overload(name)

    return run


def _may_panic(node: Expr) -> bool:
    """Whether evaluating the node may end in a panic rather than in an error."""
    own = len(node.overloads) == 1 and node.overloads[0] in _PANICKING
    return own or (node.kind == "call" and node.name == "@in") or any(map(_may_panic, children(node)))


def _then(first: Closure, second: Closure) -> Closure:
    """Go evaluates both operands, so that a panic of the second wins over an error of the first."""

    def both(frame: Frame) -> Value:
        try:
            return first(frame)
        except SelectorRunError:
            with suppress(SelectorRunError):
                second(frame)
            raise

    return both


def _or_fatal(argument: Closure, kind: type) -> Closure:
    def run(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except SelectorRunError as error:
            raise Fatal(error.message) from error
        if type(value) is not kind:
            raise Fatal(f"interface conversion: not {kind.__name__}")
        return value

    return run


# ---- Pieces ----------------------------------------------------------------------------------------------------------


def _attribute(slot: int, domain: str, name: str) -> Closure:
    def attribute(frame: Frame) -> Value:
        try:
            return frame[slot][domain][name]
        except KeyError:
            raise NoSuchKey(name) from None

    return attribute


def _equals_text(operand: Closure, text: str) -> Closure:
    def same(frame: Frame) -> bool:
        value = operand(frame)
        return value == text if type(value) is str else equal(value, text)

    return same


def membership(values: list[Value]) -> Callable[[Value], bool] | None:
    """A fast `in` for a constant list of simple values; Go builds a set, which some values cannot be looked up in."""
    kinds = {type(value) for value in values}
    if not kinds <= {str, int, Uint, float, bool}:
        return None
    known: dict[Value, Value] = dict.fromkeys(values)

    def member(value: Value) -> bool:
        if type(value) is str:
            return value in known
        require_hashable(value)
        return find(known, value) is not MISSING

    return member


def _logical(terms: list[Closure], *, stop: bool) -> Closure:
    """`&&` and `||`: a decisive answer beats an error, wherever it stands."""
    go_on = not stop

    def logical(frame: Frame) -> bool:
        failure: SelectorRunError | None = None
        for term in terms:
            try:
                value = term(frame)
            except SelectorRunError as error:
                failure = failure or error
                continue
            if value is stop:
                return not go_on
            if value is not go_on:
                failure = failure or no_such_overload("_||_" if stop else "_&&_")
        if failure is not None:
            raise failure
        return go_on

    return logical


def make_list(values: list[Value], optional: frozenset[int]) -> list[Value]:
    elements: list[Value] = []
    for i, value in enumerate(values):
        if i not in optional:
            elements.append(value)
        elif type(value) is not Optional:
            raise SelectorRunError(
                f"cannot initialize optional list element from non-optional value of type {type_name(value)}"
            )
        elif value.present:
            elements.append(value.value)
    return elements


def make_map(values: list[Value], optional: frozenset[int]) -> dict[Value, Value]:
    mapping: dict[Value, Value] = {}
    for i in range(0, len(values), 2):
        key, value = values[i], values[i + 1]
        key = as_key(key)
        if i in optional:
            if type(value) is not Optional:
                raise SelectorRunError(
                    f"cannot initialize optional entry '{key}' from non-optional value of type {type_name(value)}"
                )
            if not value.present:
                mapping.pop(key, None)
                continue
            value = value.value
        mapping[key] = value
    return mapping


def iterate(range_: Value, *, two: bool) -> Iterable[Value]:
    """What a comprehension goes through: elements or keys, or pairs; one after the other, for it may stop early."""
    if type(range_) is list:
        return enumerate(range_) if two else range_
    if isinstance(range_, dict):
        keys = keys_of(range_)
        return zip(keys, range_.values(), strict=True) if two else keys
    raise SelectorRunError(f"got '{type(range_).__name__}', expected iterable type")


def _each(frame: Frame, range_: Value, slot: int, slot2: int) -> Iterator[Value]:
    if slot2:
        for frame[slot], frame[slot2] in iterate(range_, two=True):
            yield None
    else:
        for frame[slot] in iterate(range_, two=False):
            yield None


def _quantify(items: Closure, slot: int, slot2: int, predicate: Closure, *, stop: bool) -> Closure:
    go_on = not stop

    def run(frame: Frame) -> bool:
        failure: SelectorRunError | None = None
        for _ in _each(frame, items(frame), slot, slot2):
            try:
                value = predicate(frame)
            except SelectorRunError as error:
                failure = failure or error
                continue
            if value is stop:
                return not go_on
            if value is not go_on:
                failure = failure or no_such_overload("_||_" if stop else "_&&_")
        if failure is not None:
            raise failure
        return go_on

    return run


def truth(value: Value) -> bool:
    if value is True or value is False:
        return bool(value)
    raise no_such_overload("_?_:_")


def _exactly_one(items: Closure, slot: int, slot2: int, predicate: Closure) -> Closure:
    return lambda frame: sum([truth(predicate(frame)) for _ in _each(frame, items(frame), slot, slot2)]) == 1


def _collect(
    items: Closure,
    slot: int,
    slot2: int,
    keep: Closure | None,
    item: Closure,
) -> Closure:
    def every(frame: Frame) -> list[Value]:
        turns = _each(frame, items(frame), slot, slot2)
        return [item(frame) for _ in turns]

    if keep is None:
        return every

    def some(frame: Frame) -> list[Value]:
        turns = _each(frame, items(frame), slot, slot2)
        return [item(frame) for _ in turns if truth(keep(frame))]

    return some


def _gather(  # noqa: PLR0917 - the parts of one loop
    items: Closure,
    slot: int,
    slot2: int,
    keep: Closure | None,
    entry: list[Closure],
    insert: Work,
) -> Closure:
    def gather(frame: Frame) -> Value:
        mapping: dict[Value, Value] = {}
        for _ in _each(frame, items(frame), slot, slot2):
            if keep is None or truth(keep(frame)):
                mapping = insert(mapping, *[part(frame) for part in entry])
        return mapping

    return gather
