"""Compiles a checked tree to nested Python closures that count Go's costs (cel-go interpreter, runtimecost.go).

A closure takes the frame (`dra.cel.evaluation.account`), adds its cost to the frame, and returns a value or raises
SelectorRunError. The cost limit is checked in loops, after charges that depend on a size, and at the end. Between two
checks, the size of the expression bounds the cost.

Charges follow Go's planner. A chain of selections costs one, plus one for each step. Constants that Go's planner
computes cost nothing. A call is charged even if an argument is an error, provided that all arguments were evaluated.
Calls whose arguments are constants are evaluated at compile time, and charged at run time.
"""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dra.cel import types as t
from dra.cel.cost import STRING_FACTOR
from dra.cel.device_fields import SCALARS, SLOTS
from dra.cel.device_view import TextView
from dra.cel.evaluation.account import (
    BUDGET,
    DEVICE,
    FIRST_VARIABLE,
    NEXT_CHECK,
    SPENT,
    charge_cost,
    charge_whole_work,
    open_frame,
    settle,
)
from dra.cel.evaluation.call_costs import BY_RESULT, FAILED, charge_of, flat, pattern_charge, work_after, work_before
from dra.cel.evaluation.guards import dispatched, guard, guarded
from dra.cel.library.regexes import PatternError, compile_pattern
from dra.cel.library.regexes import work as pattern_work
from dra.cel.library.standard import TYPE_NAMES, find_at, index
from dra.cel.values import (
    MISSING,
    NONE,
    Fatal,
    Optional,
    TypeValue,
    Uint,
    Value,
    as_key,
    differ,
    equal,
    find,
    keys_of,
    no_such_overload,
    require_hashable,
    size,
    type_name,
    weigh,
)
from dra.errors import CostExceeded, NoSuchKey, SelectorRunError, SelectorTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dra.budget import Budget
    from dra.cel.environment import Environment
    from dra.cel.evaluation.account import Frame
    from dra.cel.evaluation.call_costs import Charge
    from dra.cel.signatures import Work
    from dra.cel.tree import Expr, Fold

    Closure = Callable[[Frame], Value]
    # A name is a slot of the frame, or a closure if its value may still have to be computed.
    Names = dict[str, int | Closure]
    Loop = Callable[[Frame, Iterator[None]], Value]

_UNSET = object()
_MAX_FOLDED = 256  # members or characters of a value that is computed at compile time
_CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
_LOOKUPS = frozenset(("_[_]", "_[?_]", "_?._"))
_PATTERNS = frozenset(("matches", "find", "findAll"))
# Calls that are not charged, or charged differently from other calls, and the methods that compile them.
_SPECIAL = {
    "_==_": "_comparison", "_!=_": "_comparison", "_&&_": "_logic", "_||_": "_logic", "_?_:_": "_conditional", "_[_]": "_select", "_[?_]": "_select", "_?._": "_select",
    "@in": "_in", "or": "_or_else", "orValue": "_or_else",
}  # fmt: skip
# Arguments that Go reads once more to count the cost. Before Kubernetes 1.38, it panics there if they are errors or have another type.
_PANICKING: dict[str, tuple[int, type]] = {
    "list_distinct": (0, list),
    "list_flatten_int": (1, int),
    **{f"list_{type_.name}_sort": (0, list) for type_ in t.COMPARABLE},
    **{f"list_{type_.name}_sortByAssociatedKeys": (1, list) for type_ in t.COMPARABLE},
}


class _ChainStep(NamedTuple):
    """One selection or index of a chain. If `computed` is set, it computes the key at run time."""

    key: Value
    computed: Closure | None
    optional: bool
    test: bool


class Compiler:
    """Builds the closures of one expression; compiling patterns is charged to the budget."""

    def __init__(self, environment: Environment, budget: Budget | None = None) -> None:
        self._functions = environment.functions
        self._panics = not environment.since_38
        self._budget = budget
        self._scope: Names = {}
        self._sound_names: dict[str, bool] = {}
        # The constant value of each node (by id), or MISSING, and Go's charge for computing the value.
        self._constants: dict[int, tuple[Value, int]] = {}
        self.variables = 0

    def closure(self, node: Expr) -> Closure:
        """Compile one node."""
        value, cost = self._constant(node)
        if value is MISSING:
            compiled: Closure = getattr(self, f"_{node.kind}")(node)
            return compiled
        if not cost:
            return lambda _: value

        def charged(frame: Frame) -> Value:
            frame[SPENT] += cost
            return value

        return charged

    # Constants

    def _constant(self, node: Expr) -> tuple[Value, int]:
        """Return the value of a constant node, or MISSING, and the cost of evaluating it.

        A call on constants is evaluated at compile time, unless its result may be large or the call fails.
        """
        constant = self._constants.get(id(node))
        if constant is not None:
            return constant
        constant = self._constants[id(node)] = self._plan(node), 0
        if constant[0] is not MISSING or node.kind != "call":
            return constant
        special = node.name in _SPECIAL and node.name not in ("_==_", "_!=_")
        if special or node.name in _PATTERNS or work_before(node) or work_after(node):
            return constant
        if any(_is_large(self._constant(arg)[0]) for arg in node.args):
            return constant
        frame = open_frame(TextView("").slots, 0)
        try:
            value = self._call(node)(frame)
        except (SelectorRunError, CostExceeded, Fatal):
            return constant
        if not _is_large(value):
            constant = self._constants[id(node)] = value, frame[SPENT]
        return constant

    def _plan(self, node: Expr) -> Value:
        """Return a value that Go's planner computes, which costs nothing at run time, or MISSING."""
        kind = node.kind
        if kind == "literal":
            return node.value
        if kind == "ident":
            type_ = TYPE_NAMES.get(node.name.removeprefix(".")) if node.name.startswith(".") else None
            return MISSING if type_ is None else TypeValue(type_.name)
        if kind in ("list", "map"):
            values = [self._plan(arg) for arg in node.args]
            if any(value is MISSING for value in values):
                return MISSING
            try:
                return _make_list(values, node.optional) if kind == "list" else _make_map(values, node.optional)
            except (SelectorRunError, Fatal) as error:
                # Kubernetes' compiler fails or panics on a constant that cannot be built.
                raise SelectorTypeError(f"program instantiation failed: {error}", node.position) from None
        if kind == "call" and node.overloads == ("in_list",):
            return False if self._plan(node.args[1]) == [] else MISSING
        if kind == "call" and node.name in _CONVERSIONS and len(node.args) == 1:
            value = self._plan(node.args[0])
            if value is not MISSING:
                try:
                    return self._work(node)(value)
                except SelectorRunError as error:
                    raise SelectorTypeError(f"program instantiation failed: {error.message}", node.position) from None
        return MISSING

    # Names, selections and indices

    def _ident(self, node: Expr) -> Closure:
        return self._chain(node, 1)

    def _select(self, node: Expr) -> Closure:
        return self._chain(node, 0 if _base_of(node).name == "_?_:_" else 1)

    def _has(self, node: Expr) -> Closure:
        """Compile a presence test.

        Go charges only the steps of the chain, and one step less if the chain begins with `?:`.
        """
        tested = self._chain(node, 0)
        if _base_of(node).name != "_?_:_":
            return tested

        def refunded(frame: Frame) -> Value:
            try:
                return tested(frame)
            finally:
                frame[SPENT] -= 1

        return refunded

    def _raw(self, node: Expr) -> Closure:
        """Compile a branch of `?:` or an index, where Go does not charge a chain or name as a whole."""
        is_chain = _is_step(node) or (node.kind == "ident" and self._plan(node) is MISSING)
        return self._chain(node, 0) if is_chain else self.closure(node)

    def _chain(self, node: Expr, head: int) -> Closure:
        """Compile a name or value with its selections and indices; `head` is the charge for the whole chain."""
        steps: list[_ChainStep] = []
        while _is_step(node):
            if node.kind == "call":
                key, computed = self._plan(node.args[1]), None
                if key is MISSING:
                    computed = self._raw(node.args[1])
                steps.append(_ChainStep(key, computed, optional=node.name != "_[_]", test=False))
            else:
                steps.append(_ChainStep(node.name, None, optional=False, test=node.kind == "has"))
            node = node.args[0]
        steps.reverse()
        if node.kind != "ident" or self._plan(node) is not MISSING:
            return _walk(self.closure(node), steps, head)
        if not node.name.startswith("."):
            name = self._scope[node.name]
            base = name if callable(name) else itemgetter(name)
            return _walk(base, steps, head) if steps or callable(name) else _variable(name, head)
        return _of_device(steps, head) or (_walk(itemgetter(DEVICE), steps, head) if steps else _variable(DEVICE, head))

    def _new_variable(self) -> int:
        self.variables += 1
        return FIRST_VARIABLE - 1 + self.variables

    def _with(self, names: Names, node: Expr, source: Expr) -> Closure:
        """Compile a node with additional names in scope, whose values are `source` or parts of it."""
        outer, outer_sound = self._scope, self._sound_names
        self._scope = outer | names
        self._sound_names = outer_sound | dict.fromkeys(names, self._sound(source))
        closure = self.closure(node)
        self._scope, self._sound_names = outer, outer_sound
        return closure

    # Calls

    def _call(self, node: Expr) -> Closure:
        if node.name in _SPECIAL:
            compiled: Closure = getattr(self, _SPECIAL[node.name])(node)
            return compiled
        if node.name not in _PATTERNS:
            return self._charged(node, self._work(node))
        pattern = self._plan(node.args[1])
        if type(pattern) is str:
            try:
                instructions = compile_pattern(pattern, self._budget).programsize
            except PatternError as error:
                raise SelectorTypeError(f"program instantiation failed: {error}", node.args[1].position) from None
            if node.name == "matches":
                operand = self.closure(node.args[0])

                # A constant pattern is compiled again if the cache has dropped it.
                def search(frame: Frame) -> bool:
                    text = operand(frame)
                    if type(text) is not str:
                        charge_cost(frame, pattern_charge(size(text), len(pattern)))
                        raise no_such_overload("matches")
                    program = compile_pattern(pattern, frame[BUDGET])
                    charge_whole_work(frame, pattern_work(instructions, len(text)))
                    charge_cost(frame, pattern_charge(len(text), len(pattern)))
                    is_match: bool = program.search(text.encode()) is not None
                    return is_match

                return search
        return self._charged(node, self._work(node))

    def _charged(self, node: Expr, work: Work) -> Closure:
        """Compile a call: its arguments, its charge and its function."""
        args = [self.closure(arg) for arg in node.args]
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if self._panics and overload in _PANICKING:
            position, kind = _PANICKING[overload]
            args[position] = _or_fatal(args[position], kind)
        charge = charge_of(node.name, overload)
        before, after = work_before(node), work_after(node)
        # Whether Go stops at the first argument that is an error.
        if node.name in _PATTERNS:
            stops_at_error = self._plan(node.args[1]) is not MISSING
        elif node.name == "@sortByAssociatedKeys":
            stops_at_error = False  # one implementation for all types
        else:
            stops_at_error = node.name == "format" or not (
                overload or all(each.total for each in self._functions[node.name])
            )
        stops_at_error = stops_at_error or len(args) > 2
        if before is None and after is None and charge not in BY_RESULT:
            if len(args) == 1:
                return _call_one(args[0], work, charge)
            if len(args) == 2 and not stops_at_error:
                value, cost = self._constant(node.args[1])
                if charge is not flat or value is MISSING:
                    return _call_two(args[0], args[1], work, charge)
                # The value of a loop variable is read from its slot.
                slot = self._scope.get(node.args[0].name) if node.args[0].kind == "ident" else None
                return _call_constant(slot if isinstance(slot, int) else args[0], value, work, 1 + cost)

        def call(frame: Frame) -> Value:
            values: list[Value] = []
            failure: SelectorRunError | None = None
            for arg in args:
                try:
                    values.append(arg(frame))
                except SelectorRunError as error:
                    failure = failure or error
                    values.append(FAILED)
                    if stops_at_error:
                        break
            if failure is not None:
                if len(values) == len(args):
                    charge_cost(frame, charge(values, FAILED))
                raise failure
            if before is not None:
                before(frame, values)
            if charge not in BY_RESULT:
                charge_cost(frame, charge(values, None))  # before the work, which may be long
                result = work(*values)
            else:
                try:
                    result = work(*values)
                except SelectorRunError:
                    charge_cost(frame, charge(values, FAILED))
                    raise
                charge_cost(frame, charge(values, result))
            if after is not None:
                after(frame, result)
            return result

        return call

    def _work(self, node: Expr) -> Work:
        """Return the Python function behind a call. It checks types that are known only at run time."""
        overloads = self._functions[node.name]
        fitting = [
            overload for overload in overloads if overload.method == node.member and overload.id in node.overloads
        ]
        first = fitting[0]
        work = first.work
        assert work is not None
        if first.total and all(overload.work is work for overload in fitting):
            return work
        if len(fitting) > 1:
            return dispatched(node.name, [overload for overload in overloads if len(overload.args) == len(node.args)])
        guards = []
        for position, expected in enumerate(first.args):
            arg = node.args[position]
            if expected.kind not in ("dyn", "any", "param") and not (arg.type == expected and self._sound(arg)):
                guards.append((position, guard(expected)))
        return guarded(node.name, work, guards) if guards else work

    def _sound(self, node: Expr) -> bool:
        """Whether the static type is certain. A type that was inferred from a value of unknown type is not."""
        if t.is_dyn(node.type):
            return False
        if node.kind == "ident":
            return node.name.startswith(".") or self._sound_names.get(node.name, False)
        if node.kind == "call":
            functions = self._functions.get(node.name, ())
            if not any(overload.params for overload in functions if overload.id in node.overloads):
                return True
        return node.kind != "fold" and all(map(self._sound, node.args))

    def _comparison(self, node: Expr) -> Closure:
        """Compile `==` or `!=`. Go charges the comparison of two strings by the shorter one."""
        expected: bool = node.name == "_==_"
        otherwise = equal if expected else differ
        constant = self._plan(node.args[1])
        kind = type(constant)
        if kind not in (str, int):
            return self._charged(node, otherwise)
        operand, charge = self.closure(node.args[0]), charge_of(node.name, "")
        length = len(constant) if kind is str else 1
        full_charge, failed = math.ceil(length * STRING_FACTOR), math.ceil(min(length, 1) * STRING_FACTOR)

        def compare(frame: Frame) -> bool:
            try:
                value = operand(frame)
            except SelectorRunError:
                frame[SPENT] += failed
                raise
            if type(value) is not kind:
                charge_cost(frame, charge([value, constant], None))
                return otherwise(value, constant)
            frame[SPENT] += (
                full_charge if kind is int or len(value) >= length else math.ceil(len(value) * STRING_FACTOR)
            )
            return (value == constant) is expected

        return compare

    def _in(self, node: Expr) -> Closure:
        """Compile `in`. From a constant list of scalars, Go builds a set; it then charges nothing for `in`."""
        values = self._plan(node.args[1])
        simple = (str, int, Uint, float, bool)
        if node.overloads != ("in_list",) or values is MISSING or any(type(value) not in simple for value in values):
            return self._charged(node, self._work(node))
        item = self.closure(node.args[0])
        members: dict[Value, Value] = dict.fromkeys(values)

        def is_member(frame: Frame) -> bool:
            value = item(frame)
            if type(value) is str:
                return value in members
            require_hashable(value)
            return find(members, value) is not MISSING

        return is_member

    def _conditional(self, node: Expr) -> Closure:
        condition, yes, no = self.closure(node.args[0]), self._raw(node.args[1]), self._raw(node.args[2])
        return lambda frame: yes(frame) if _truth(condition(frame)) else no(frame)

    def _logic(self, node: Expr) -> Closure:
        """Compile `&&` or `||`. An operand that decides the result wins over an error in any other operand."""
        terms = [self.closure(arg) for arg in node.args]
        name = node.name
        stop: bool = name == "_||_"
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
                    failure = failure or no_such_overload(name)
            if failure is not None:
                raise failure
            return go_on

        return logical

    def _or_else(self, node: Expr) -> Closure:
        """Compile `or` or `orValue`."""
        first, second = self.closure(node.args[0]), self.closure(node.args[1])
        name, as_value = node.name, node.name == "orValue"

        def either(frame: Frame) -> Value:
            value = first(frame)
            if type(value) is not Optional:
                raise no_such_overload(name)
            if not value.present:
                return second(frame)
            return value.value if as_value else value

        return either

    # Lists and maps

    def _list(self, node: Expr) -> Closure:
        return self._build(node, _make_list, 10)

    def _map(self, node: Expr) -> Closure:
        return self._build(node, _make_map, 30)

    def _build(self, node: Expr, make: Callable[[list[Value], frozenset[int]], Value], cost: int) -> Closure:
        parts, optional = [self.closure(arg) for arg in node.args], node.optional

        def build(frame: Frame) -> Value:
            frame[SPENT] += cost
            return make([part(frame) for part in parts], optional)

        return build

    # Comprehensions

    def _fold(self, node: Expr) -> Closure:
        fold = node.fold
        assert fold is not None
        if fold.macro == "bind":
            return self._bind(fold)
        items = self.closure(fold.range)
        slots = [self._new_variable()]
        names: Names = {fold.var: slots[0]}
        if fold.var2:
            slots.append(self._new_variable())
            names[fold.var2] = slots[1]

        def inside(part: Expr) -> Closure:
            return self._with(names, part, fold.range)

        # Compile only the parts that the user wrote; the rest of the macro is the loop itself.
        step, keep = fold.step, None
        if fold.macro == "all":
            loop = _quantifier(inside(step.args[1]), stop=False, condition=2)
        elif fold.macro == "exists":
            loop = _quantifier(inside(step.args[1]), stop=True, condition=3)
        elif fold.macro == "exists_one":
            loop = _exactly_one(inside(step.args[0]))
        else:
            if step.name == "_?_:_":
                keep, step = inside(step.args[0]), step.args[1]
            if fold.macro == "list":
                cost = 2 if self._plan(step.args[1]) is not MISSING else 12
                loop = _list_collector(keep, inside(step.args[1].args[0]), cost)
            else:
                loop = _map_collector(keep, [inside(arg) for arg in step.args[1:]], self._work(step))
        two = bool(fold.var2)

        def run(frame: Frame) -> Value:
            range_ = items(frame)
            entries: Iterable[Any]  # elements, keys or pairs; an iterator, because the loop may stop early
            if type(range_) is list:
                entries = enumerate(range_) if two else range_
            elif isinstance(range_, dict):
                entries = keys_of(range_)
                if two:
                    entries = zip(entries, range_.values(), strict=True)
            else:
                raise SelectorRunError(f"got '{type(range_).__name__}', expected iterable type")
            if two:
                return loop(frame, _pairs(frame, entries, *slots))
            return loop(frame, map(frame.__setitem__, repeat(slots[0]), entries))

        return run

    def _bind(self, fold: Fold) -> Closure:
        """Compile `cel.bind`. Its value or error is computed when the name is first read."""
        slot = self._new_variable()
        value = self.closure(fold.init)

        def recall(frame: Frame) -> Value:
            stored = frame[slot]
            if stored is _UNSET:
                try:
                    stored = frame[slot] = value(frame)
                except SelectorRunError as error:
                    frame[slot] = error
                    raise
            elif isinstance(stored, SelectorRunError):
                raise stored
            return stored

        result = self._with({fold.accu: recall}, fold.result, fold.init)

        def bind(frame: Frame) -> Value:
            frame[slot] = _UNSET
            return result(frame)

        return bind


def _is_large(value: Value) -> bool:
    """Whether a value is MISSING, or too large to keep with the compiled expression."""
    if type(value) in (str, bytes):
        return len(value) > _MAX_FOLDED
    return value is MISSING or weigh(value, _MAX_FOLDED) >= _MAX_FOLDED


# ---- Names, selections and indices ----------------------------------------------------------------------------------


def _is_step(node: Expr) -> bool:
    return node.kind in ("select", "has") or (node.kind == "call" and node.name in _LOOKUPS)


def _base_of(node: Expr) -> Expr:
    while _is_step(node):
        node = node.args[0]
    return node


def _variable(slot: int, cost: int) -> Closure:
    def variable(frame: Frame) -> Value:
        frame[SPENT] += cost
        return frame[slot]

    return variable


def _of_device(steps: list[_ChainStep], head: int) -> Closure | None:
    """Compile a usual chain, as `device.attributes["domain"].name`, to a fast closure; return None for any other."""
    if not 1 <= len(steps) <= 3 or any(step.computed or type(step.key) is not str for step in steps):
        return None
    last, is_plain = steps[-1], not any(step.test or step.optional for step in steps[:2])
    field = steps[0].key
    slot = SLOTS.get(field)
    if slot is None or not is_plain:
        return None
    cost = head + len(steps)
    if len(steps) == 1:
        return _variable(slot, cost)
    if field in SCALARS:
        return None
    domain = steps[1].key
    if len(steps) == 2:

        def names(frame: Frame) -> Value:
            frame[SPENT] += cost
            return frame[slot][domain]

        return names
    name = last.key
    if last.test:

        def is_there(frame: Frame) -> bool:
            frame[SPENT] += cost
            return name in frame[slot][domain]

        return is_there
    if last.optional:

        def lookup(frame: Frame) -> Value:
            value = frame[slot][domain].get(name, MISSING)
            if value is MISSING:
                frame[SPENT] += cost - 1
                return NONE
            frame[SPENT] += cost
            return Optional(value)

        return lookup

    def attribute(frame: Frame) -> Value:
        frame[SPENT] += cost
        try:
            return frame[slot][domain][name]
        except KeyError:
            raise NoSuchKey(name) from None

    return attribute


def _walk(base: Closure, steps: list[_ChainStep], head: int) -> Closure:
    """Compile any chain. A step is charged when it is taken; an optional step is charged only if it finds a value."""
    if not steps and not head:
        return base
    tests = bool(steps) and steps[-1].test

    def walk(frame: Frame) -> Value:
        frame[SPENT] += head
        value = base(frame)
        if not steps:
            return value
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return False if tests else value
            value = value.value
        for key, computed, is_optional, test in steps:
            if is_optional:
                optional = True
            if computed is not None:
                try:
                    key = computed(frame)  # noqa: PLW2901 - the key of this step
                except SelectorRunError:
                    if not optional:
                        frame[SPENT] += 1
                    raise
            if not optional:
                frame[SPENT] += 1
                value = find_at(value, key) is not MISSING if test else index(value, key)
                continue
            value = find_at(value, key)
            if value is MISSING:
                return False if tests else NONE
            frame[SPENT] += 1
            if test:
                return True
        return Optional(value) if optional else value

    return walk


# ---- Calls ----------------------------------------------------------------------------------------------------------


def _call_one(argument: Closure, work: Work, charge: Charge) -> Closure:
    failed = charge([FAILED], FAILED)
    fixed = charge is flat

    def call(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except SelectorRunError:
            frame[SPENT] += failed
            raise
        if fixed:
            frame[SPENT] += 1
        else:
            charge_cost(frame, charge([value], None))
        return work(value)

    return call


def _call_constant(left: Closure | int, value: Value, work: Work, cost: int) -> Closure:
    """Compile a call with a fixed charge. `left` computes the first argument, or is the slot of a variable."""
    if isinstance(left, int):
        slot, cost = left, cost + 1

        def on_variable(frame: Frame) -> Value:
            frame[SPENT] += cost
            return work(frame[slot], value)

        return on_variable

    def call(frame: Frame) -> Value:
        frame[SPENT] += cost
        return work(left(frame), value)

    return call


def _call_two(left: Closure, right: Closure, work: Work, charge: Charge) -> Closure:
    """Compile a call whose charge depends on its two arguments. Both are evaluated, even if the first is an error."""

    def call(frame: Frame) -> Value:
        try:
            first = left(frame)
        except SelectorRunError:
            second: Value = FAILED
            with suppress(SelectorRunError):
                second = right(frame)
            charge_cost(frame, charge([FAILED, second], FAILED))
            raise
        try:
            second = right(frame)
        except SelectorRunError:
            charge_cost(frame, charge([first, FAILED], FAILED))
            raise
        charge_cost(frame, charge([first, second], None))
        return work(first, second)

    return call


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


def _truth(value: Value) -> bool:
    if value is True or value is False:
        return bool(value)
    raise no_such_overload("_?_:_")


# ---- Lists and maps -------------------------------------------------------------------------------------------------


def _make_list(values: list[Value], optional: frozenset[int]) -> list[Value]:
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


def _make_map(values: list[Value], optional: frozenset[int]) -> dict[Value, Value]:
    mapping: dict[Value, Value] = {}
    for i in range(0, len(values), 2):
        key, value = as_key(values[i]), values[i + 1]
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


# ---- Comprehensions -------------------------------------------------------------------------------------------------


def _pairs(frame: Frame, items: Iterable[Any], first: int, second: int) -> Iterator[None]:
    for frame[first], frame[second] in items:
        yield None


def _quantifier(predicate: Closure, *, stop: bool, condition: int) -> Loop:
    """Make the loop of `all` and `exists`. Go evaluates a condition before each step, which costs more for `exists`."""

    def quantify(frame: Frame, entries: Iterator[None]) -> bool:
        failure: SelectorRunError | None = None
        decided = False
        for _ in entries:
            if decided:
                frame[SPENT] += condition
                break
            spent = frame[SPENT] = frame[SPENT] + condition + 1
            if spent > frame[NEXT_CHECK]:
                settle(frame)
            try:
                value = predicate(frame)
            except SelectorRunError as error:
                failure = failure or error
                continue
            if value is stop:
                decided = True
            elif value is not (not stop):
                failure = failure or no_such_overload("_||_" if stop else "_&&_")
        charge_cost(frame, 1)
        if decided:
            return stop
        if failure is not None:
            raise failure
        return not stop

    return quantify


def _exactly_one(predicate: Closure) -> Loop:
    def count(frame: Frame, entries: Iterator[None]) -> bool:
        matches = 0
        failure: SelectorRunError | None = None
        for _ in entries:
            try:
                if _truth(predicate(frame)):
                    matches += 1
                    charge_cost(frame, 2)
            except SelectorRunError as error:
                failure = failure or error
        charge_cost(frame, 2)
        if failure is not None:
            raise failure
        return matches == 1

    return count


def _list_collector(keep: Closure | None, item: Closure, cost: int) -> Loop:
    """Make the loop of `map`, `filter` and `transformList`."""

    def collect(frame: Frame, entries: Iterator[None]) -> list[Value]:
        collected: list[Value] = []
        failure: SelectorRunError | None = None
        for _ in entries:
            try:
                if keep is None or _truth(keep(frame)):
                    charge_cost(frame, cost)
                    collected.append(item(frame))
            except SelectorRunError as error:
                failure = failure or error
        charge_cost(frame, 1)
        if failure is not None:
            raise failure
        return collected

    return collect


def _map_collector(keep: Closure | None, parts: list[Closure], insert: Work) -> Loop:
    """Make the loop of `transformMap` and `transformMapEntry`."""

    def collect(frame: Frame, entries: Iterator[None]) -> dict[Value, Value]:
        collected: dict[Value, Value] = {}
        failure: SelectorRunError | None = None
        for _ in entries:
            try:
                if keep is None or _truth(keep(frame)):
                    charge_cost(frame, 1)
                    # After an error, Go still evaluates the entry of transformMapEntry, but not the value of
                    # transformMap.
                    if failure is None or len(parts) == 1:
                        charge_cost(frame, 1)
                        collected = insert(collected, *[part(frame) for part in parts])
            except SelectorRunError as error:
                failure = failure or error
        charge_cost(frame, 1)
        if failure is not None:
            raise failure
        return collected

    return collect
