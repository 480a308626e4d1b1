"""The slow way to evaluate: the same answers, while counting what Go counts (cel-go interpreter/runtimecost.go,
apiserver library/cost.go).

Used where an expression may cost a lot, or make large values, or somebody's budget is to be charged exactly. The account
(`dra.cel.evaluation.account`) is looked at in loops, where a charge depends on a size, and at the end: nothing else can run away.
Charges follow Go's planner: a chain of selections is one charge plus one for each step; what the planner computes in
advance is free; a call is charged even if its arguments are errors, as long as all of them were evaluated.
"""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

from dra.cel.cost import REGEX_FACTOR, STRING_FACTOR
from dra.cel.evaluation import account, tolls
from dra.cel.evaluation.account import LOOK, SPENT, pay, settle
from dra.cel.evaluation.closures import DEVICE, UNSET, Compiler, iterate, make_list, make_map, membership, truth
from dra.cel.library.named_formats import Format
from dra.cel.library.standard import find_at, index
from dra.cel.library.urls import Url
from dra.cel.values import MISSING, NONE, Optional, Sized, Sum, Value, differ, equal, no_such_overload, size
from dra.errors import SelectorRunError
from dra.quantity import Quantity
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dra.cel.evaluation.closures import Frame
    from dra.cel.syntax import Expr, Fold

    Closure = Callable[[Frame], Value]
    Charge = Callable[[list[Value], Value], int]
    _Names = dict[str, int | Closure]


def watch(closure: Closure) -> Closure:
    """Look at the account once more when the evaluation is over."""

    def run(frame: Frame) -> Value:
        try:
            return closure(frame)
        finally:
            settle(frame)

    return run


class _Failed:
    """Stands for an argument that was an error; its size is one."""


_FAILED = _Failed()


class _Link:
    """One selection or index of a chain."""

    __slots__ = ("constant", "key", "optional", "test")

    def __init__(self, constant: Value, key: Closure | None, *, optional: bool, test: bool) -> None:
        self.constant = constant
        self.key = key
        self.optional = optional
        self.test = test

    def key_of(self, frame: Frame) -> Value:
        return self.constant if self.key is None else self.key(frame)


class MeteredCompiler(Compiler):
    """Builds closures that keep the account in the frame."""

    first_variable = account.FIRST_VARIABLE

    def constant(self, node: Expr) -> Value:
        """Only what Go computes in advance is free."""
        return self.plan(node)

    # Chains of selections

    def _ident(self, node: Expr) -> Closure:
        slot = self._scope.get(node.name)
        if not isinstance(slot, int):
            return self._charge(self._resolve(node))

        def variable(frame: Frame) -> Value:
            frame[SPENT] += 1
            return frame[slot]

        return variable

    def _select(self, node: Expr) -> Closure:
        closure = self._resolve(node)
        return closure if _base_of(node).name == "_?_:_" else self._charge(closure)

    def _index(self, node: Expr) -> Closure:
        return self._select(node)

    def _optional(self, node: Expr) -> Closure:
        return self._select(node)

    def _has(self, node: Expr) -> Closure:
        """A presence test is not charged for itself, and after `?:`, which is not charged either, one is given back."""
        closure = self._resolve(node)
        if _base_of(node).name != "_?_:_":
            return closure

        def run(frame: Frame) -> Value:
            try:
                return closure(frame)
            finally:
                frame[SPENT] -= 1

        return run

    def _charge(self, closure: Closure) -> Closure:
        def run(frame: Frame) -> Value:
            frame[SPENT] += 1
            return closure(frame)

        return run

    def _raw(self, node: Expr) -> Closure:
        """A chain, or a name, where Go does not watch it: as a branch of `?:` or as an index."""
        return self._resolve(node) if _is_attribute(node) and self.plan(node) is MISSING else self.closure(node)

    def _resolve(self, node: Expr) -> Closure:
        steps: list[_Link] = []
        while _is_step(node):
            steps.append(self._step(node))
            node = node.args[0]
        steps.reverse()
        base = self._base(node)
        return _chain(base, steps) if steps else base

    def _step(self, node: Expr) -> _Link:
        if node.kind in ("select", "has"):
            test = node.kind == "has"
            return _Link(node.name, None, optional=False, test=test)
        optional = node.name != "_[_]"
        index = node.args[1]
        key = self.plan(index)
        if key is MISSING:
            computed = self._raw(index)
            return _Link(None, computed, optional=optional, test=False)
        return _Link(key, None, optional=optional, test=False)

    def _base(self, node: Expr) -> Closure:
        if node.kind == "ident" and self.plan(node) is MISSING:
            return (lambda frame: frame[DEVICE]) if node.name.startswith(".") else self._read_name(node.name)
        return self.closure(node)

    def _conditional(self, node: Expr) -> Closure:
        condition, yes, no = self.closure(node.args[0]), self._raw(node.args[1]), self._raw(node.args[2])
        return lambda frame: yes(frame) if truth(condition(frame)) else no(frame)

    # Calls

    def _call(self, node: Expr) -> Closure:
        if node.name in ("_==_", "_!=_"):
            return self._comparison(node)
        if node.name in ("matches", "find", "findAll"):
            self._check_pattern(node)
        if node.name == "@in":
            values = self.plan(node.args[1])
            member = membership(values) if node.overloads == ("in_list",) and values is not MISSING else None
            if member is not None:
                item = self.closure(node.args[0])
                return lambda frame: member(item(frame))
            return self._pay(node, self._work(node))
        if node.name in _UNCHARGED:
            return self._special(node)
        return self._pay(node, self._work(node))

    def _comparison(self, node: Expr) -> Closure:
        return self._pay(node, equal if node.name == "_==_" else differ)

    def _pay(self, node: Expr, work: Callable[..., Value]) -> Closure:
        args = self._arguments(node)
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        charge = charge_of(node.name, overload)
        stops = len(args) > 2 or self._is_dispatched(node, overload)
        before, after = tolls.before(node), tolls.after(node)
        free = before is None and after is None
        if charge is _one and len(args) == 2 and not stops and free:
            variable, value = self._slot(node.args[0]), self.plan(node.args[1])
            if variable and value is not MISSING:
                return _pay_variable(variable, value, work)
            return _pay_pair(args[0], args[1], work)
        if len(args) == 2 and not stops and charge not in _BY_RESULT and free:
            return _charge_pair(args[0], args[1], work, charge)

        def call(frame: Frame) -> Value:
            values: list[Value] = []
            failure: SelectorRunError | None = None
            for arg in args:
                try:
                    values.append(arg(frame))
                except SelectorRunError as error:
                    failure = failure or error
                    values.append(_FAILED)
                    if stops:
                        break
            if failure is not None:
                if len(values) == len(args):
                    pay(frame, charge(values, _FAILED))
                raise failure
            if before is not None:
                before(frame, values)
            if charge not in _BY_RESULT:
                pay(frame, charge(values, None))  # before the work, which may be long
                result = work(*values)
            else:
                try:
                    result = work(*values)
                except SelectorRunError:
                    pay(frame, charge(values, _FAILED))
                    raise
                pay(frame, charge(values, result))
            if after is not None:
                after(frame, result)
            return result

        return call

    def _slot(self, node: Expr) -> int:
        """The slot of a variable that is surely set, or 0."""
        slot = self._scope.get(node.name) if node.kind == "ident" else None
        return slot if isinstance(slot, int) else 0

    def _is_dispatched(self, node: Expr, overload: str) -> bool:
        """Whether Go calls the function in a way that stops at the first argument that is an error."""
        if node.name == "format":
            return True
        if node.name == "@sortByAssociatedKeys":
            return False  # one implementation for all types
        if node.name in ("matches", "find", "findAll"):
            return self.plan(node.args[1]) is not MISSING
        return not overload and not all(each.total for each in self._functions[node.name])

    # Lists and maps

    def _list(self, node: Expr) -> Closure:
        elements = [self.closure(arg) for arg in node.args]
        optional = node.optional

        def build(frame: Frame) -> Value:
            try:
                return make_list([element(frame) for element in elements], optional)
            finally:
                frame[SPENT] += 10

        return build

    def _map(self, node: Expr) -> Closure:
        parts = [self.closure(arg) for arg in node.args]
        optional = node.optional

        def build(frame: Frame) -> Value:
            try:
                return make_map([part(frame) for part in parts], optional)
            finally:
                frame[SPENT] += 30

        return build

    # Comprehensions

    def _fold(self, node: Expr) -> Closure:
        fold = node.fold
        assert fold is not None
        if fold.macro == "bind":
            return self._bind(fold)
        items = self.closure(fold.range)
        slots = [self._variable()]
        names: _Names = {fold.var: slots[0]}
        if fold.var2:
            slots.append(self._variable())
            names[fold.var2] = slots[1]
        loop = getattr(self, f"_loop_{fold.macro}")(fold, names)
        two = bool(fold.var2)

        def run(frame: Frame) -> Value:
            return loop(frame, _entries(frame, iterate(items(frame), two=two), slots))

        return run

    def _loop_all(self, fold: Fold, names: _Names) -> Callable[[Frame, Iterator[None]], Value]:
        return _quantifier(self._with(names, fold.step.args[1], fold.range), stop=False, condition=2)

    def _loop_exists(self, fold: Fold, names: _Names) -> Callable[[Frame, Iterator[None]], Value]:
        return _quantifier(self._with(names, fold.step.args[1], fold.range), stop=True, condition=3)

    def _loop_exists_one(self, fold: Fold, names: _Names) -> Callable[[Frame, Iterator[None]], Value]:
        predicate = self._with(names, fold.step.args[0], fold.range)

        def one(frame: Frame, entries: Iterator[None]) -> bool:
            count = 0
            failure: SelectorRunError | None = None
            for _ in entries:
                try:
                    if truth(predicate(frame)):
                        count += 1
                        pay(frame, 2)
                except SelectorRunError as error:
                    failure = failure or error
            pay(frame, 2)
            if failure is not None:
                raise failure
            return count == 1

        return one

    def _loop_list(self, fold: Fold, names: _Names) -> Callable[[Frame, Iterator[None]], Value]:
        keep, step = self._split_condition(fold, names)
        item = self._with(names, step.args[1].args[0], fold.range)
        cost = 2 if self.plan(step.args[1]) is not MISSING else 12

        def collect(frame: Frame, entries: Iterator[None]) -> list[Value]:
            collected: list[Value] = []
            failure: SelectorRunError | None = None
            for _ in entries:
                try:
                    if keep is None or truth(keep(frame)):
                        pay(frame, cost)
                        collected.append(item(frame))
                except SelectorRunError as error:
                    failure = failure or error
            pay(frame, 1)
            if failure is not None:
                raise failure
            return collected

        return collect

    def _loop_map(self, fold: Fold, names: _Names) -> Callable[[Frame, Iterator[None]], Value]:
        keep, step = self._split_condition(fold, names)
        parts = [self._with(names, arg, fold.range) for arg in step.args[1:]]
        insert = self._work(step)

        def gather(frame: Frame, entries: Iterator[None]) -> dict[Value, Value]:
            gathered: dict[Value, Value] = {}
            failure: SelectorRunError | None = None
            for _ in entries:
                try:
                    if keep is None or truth(keep(frame)):
                        pay(frame, 1)
                        # After an error nothing is added any more; an entry is still evaluated, a key and value are not.
                        if failure is None or len(parts) == 1:
                            pay(frame, 1)
                            gathered = insert(gathered, *[part(frame) for part in parts])
                except SelectorRunError as error:
                    failure = failure or error
            pay(frame, 1)
            if failure is not None:
                raise failure
            return gathered

        return gather

    def _split_condition(self, fold: Fold, names: _Names) -> tuple[Closure | None, Expr]:
        step = fold.step
        if step.name != "_?_:_":
            return None, step
        return self._with(names, step.args[0], fold.range), step.args[1]

    def _bind(self, fold: Fold) -> Closure:
        slot = self._variable()
        value = self.closure(fold.init)

        def recall(frame: Frame) -> Value:
            known = frame[slot]
            if known is UNSET:
                try:
                    known = frame[slot] = value(frame)
                except SelectorRunError as error:
                    frame[slot] = error
                    raise
            if isinstance(known, SelectorRunError):
                raise known
            return known

        result = self._with({fold.accu: recall}, fold.result, fold.init)

        def bind(frame: Frame) -> Value:
            frame[slot] = UNSET
            return result(frame)

        return bind


def _pay_pair(left: Closure, right: Closure, work: Callable[..., Value]) -> Closure:
    """The commonest call: two arguments, both always evaluated, for a charge of one."""

    def call(frame: Frame) -> Value:
        try:
            first = left(frame)
        except SelectorRunError:
            with suppress(SelectorRunError):
                right(frame)
            raise
        finally:
            frame[SPENT] += 1
        return work(first, right(frame))

    return call


def _charge_pair(left: Closure, right: Closure, work: Callable[..., Value], charge: Charge) -> Closure:
    """Two arguments, both always evaluated, for a charge that depends on them."""

    def call(frame: Frame) -> Value:
        try:
            first = left(frame)
        except SelectorRunError:
            second: Value = _FAILED
            with suppress(SelectorRunError):
                second = right(frame)
            pay(frame, charge([_FAILED, second], _FAILED))
            raise
        try:
            second = right(frame)
        except SelectorRunError:
            pay(frame, charge([first, _FAILED], _FAILED))
            raise
        pay(frame, charge([first, second], None))
        return work(first, second)

    return call


def _pay_variable(slot: int, value: Value, work: Callable[..., Value]) -> Closure:
    """A variable and a constant, as is usual in loops: one for the variable and one for the call."""

    def call(frame: Frame) -> Value:
        frame[SPENT] += 2
        return work(frame[slot], value)

    return call


_UNCHARGED = frozenset(("_&&_", "_||_", "_?_:_", "or", "orValue", "_[_]", "_[?_]", "_?._"))


def _is_step(node: Expr) -> bool:
    return node.kind in ("select", "has") or (node.kind == "call" and node.name in ("_[_]", "_[?_]", "_?._"))


def _base_of(node: Expr) -> Expr:
    while _is_step(node):
        node = node.args[0]
    return node


def _is_attribute(node: Expr) -> bool:
    return _is_step(node) or node.kind == "ident"


def _chain(base: Closure, steps: list[_Link]) -> Closure:
    def chain(frame: Frame) -> Value:
        value = base(frame)
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return False if steps[-1].test else value
            value = value.value
        for step in steps:
            optional = optional or step.optional
            try:
                key = step.key_of(frame)
            except SelectorRunError:
                if not optional:
                    pay(frame, 1)
                raise
            if step.test:
                pay(frame, 0 if optional else 1)
                found = find_at(value, key) is not MISSING
                if optional and found:
                    pay(frame, 1)
                return found
            if optional:
                value = find_at(value, key)
                if value is MISSING:
                    return False if steps[-1].test else NONE
                pay(frame, 1)
            else:
                pay(frame, 1)
                value = index(value, key)
        return Optional(value) if optional else value

    return chain


def _entries(frame: Frame, items: Iterable[Value], slots: list[int]) -> Iterator[None]:
    """Set the variables to one entry after the other."""
    if len(slots) == 1:
        return map(frame.__setitem__, repeat(slots[0]), items)
    return _pairs(frame, items, *slots)


def _pairs(frame: Frame, items: Iterable[Value], first: int, second: int) -> Iterator[None]:
    for frame[first], frame[second] in items:
        yield None


def _quantifier(predicate: Closure, *, stop: bool, condition: int) -> Callable[[Frame, Iterator[None]], Value]:
    """`all` and `exists`: before each step Go asks whether to go on, which costs more for `exists`."""

    def run(frame: Frame, entries: Iterator[None]) -> bool:
        failure: SelectorRunError | None = None
        decided = False
        for _ in entries:
            if decided:
                frame[SPENT] += condition
                break
            spent = frame[SPENT] = frame[SPENT] + condition + 1
            if spent > frame[LOOK]:
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
        pay(frame, 1)
        if decided:
            return stop
        if failure is not None:
            raise failure
        return not stop

    return run


# ---- What calls cost ------------------------------------------------------------------------------------------------


def charge_of(name: str, overload: str) -> Charge:
    """Return how a call is charged: by its exact overload, by the function's name, or one."""
    charge = _BY_OVERLOAD.get(overload) or _BY_NAME.get(name) or _STANDARD.get(overload)
    if name == "ip" and overload == "cidr_ip":
        charge = None
    return charge or _one


def _one(_: list[Value], __: Value) -> int:
    return 1


def _library_size(value: Value) -> int:
    """Kubernetes' own size: it does not look into optionals."""
    return 1 if type(value) is Optional else size(value)


def _scan(position: int, factor: float) -> Charge:
    return lambda args, _: math.ceil(_library_size(args[position]) * factor)


def _double_scan(args: list[Value], _: Value) -> int:
    return math.ceil(float(_library_size(args[0])) * 2 * STRING_FACTOR)


def _join(_: list[Value], result: Value) -> int:
    return math.ceil(float(_library_size(result)) * 2 * STRING_FACTOR)


def _regex(text: Value, pattern: Value, of: Callable[[Value], int]) -> int:
    return math.ceil((1.0 + of(text)) * STRING_FACTOR) * math.ceil(of(pattern) * REGEX_FACTOR)


def _find(args: list[Value], _: Value) -> int:
    return _regex(args[0], args[1], _library_size)


def _matches(args: list[Value], _: Value) -> int:
    return _regex(args[0], args[1], size)


def _traversal(value: Value) -> int:
    kind = type(value)
    if kind is str:
        return int(len(value.encode(errors="surrogatepass")) * STRING_FACTOR)
    if kind is bytes:
        return int(len(value) * STRING_FACTOR)
    if kind is list:
        return sum(map(_traversal, value))
    if isinstance(value, dict):
        return sum(_traversal(key) + _traversal(item) for key, item in value.items())
    return 1


def _first_traversal(args: list[Value], _: Value) -> int:
    return _traversal(args[0])


def _contains_ip(args: list[Value], _: Value) -> int:
    return math.ceil(2 * _library_size(args[0]) * STRING_FACTOR)


def _contains_cidr(args: list[Value], result: Value) -> int:
    return _contains_ip(args, result) + math.ceil(_library_size(args[0]) * STRING_FACTOR) + 1


def _and_parsing(charge: Charge) -> Charge:
    """The same for the overload that takes a text, which has to be parsed first."""
    return lambda args, result: charge(args, result) + math.ceil(_library_size(args[1]) * STRING_FACTOR)


def _validate(args: list[Value], _: Value) -> int:
    if not isinstance(args[0], Format):
        return 1
    return math.ceil((1.0 + _library_size(args[1])) * STRING_FACTOR) * math.ceil(args[0].regex_size * REGEX_FACTOR)


def _smaller(args: list[Value], _: Value) -> int:
    return math.ceil(min(size(args[0]), size(args[1])) * STRING_FACTOR)


def _equals(args: list[Value], result: Value) -> int:
    if type(args[0]) is int and type(args[1]) is int:
        return 1
    if isinstance(args[0], Quantity | Version | Format | Url | Sum) or (
        isinstance(args[0], Sized) and args[0].type_name
    ):
        return 1
    return _smaller(args, result)


def _contains(args: list[Value], _: Value) -> int:
    return math.ceil(size(args[0]) * STRING_FACTOR) * math.ceil(size(args[1]) * STRING_FACTOR)


def _both(args: list[Value], _: Value) -> int:
    return math.ceil((size(args[0]) + size(args[1])) * STRING_FACTOR)


def _allocation(factor: float, count: int) -> int:
    return int(count * (1.0 if factor < 0 else factor)) + 11


def _flattening(args: list[Value], _: Value) -> int:
    depth = float(args[1]) if len(args) == 2 and type(args[1]) is int else 1.0
    return _allocation(depth, _plain_size(args[0]))


def _plain_size(value: Value) -> int:
    return _library_size(value)


def _self_comparison(position: int) -> Charge:
    def charge(args: list[Value], _: Value) -> int:
        values = args[position]
        if type(values) is not list:
            return 1
        textual = bool(values) and type(values[0]) in (str, bytes)
        return _allocation(2.0 + STRING_FACTOR if textual else 2.0, len(values) ** 2)

    return charge


def _product(_: list[Value], result: Value) -> int:
    return _allocation(1, _plain_size(result))


def _sets(factor: float) -> Charge:
    return lambda args, _: 1 + int(_plain_size(args[0]) * _plain_size(args[1]) * factor)


_BY_RESULT = frozenset((_join, _product))
_TYPES = ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes")

_BY_OVERLOAD: dict[str, Charge] = {
    "cidr_contains_ip_string": _and_parsing(_contains_ip), "cidr_contains_cidr_string": _and_parsing(_contains_cidr),
    "list_slice": _product, "lists_range": _product, "list_reverse": _product,
    "list_flatten": _flattening, "list_flatten_int": _flattening, "list_distinct": _self_comparison(0),
    **{f"list_{name}_sort": _self_comparison(0) for name in _TYPES},
    **{f"list_{name}_sortByAssociatedKeys": _self_comparison(1) for name in _TYPES},
    "list_sets_contains_list": _sets(1), "list_sets_intersects_list": _sets(1), "list_sets_equivalent_list": _sets(2),
}  # fmt: skip
_BY_NAME: dict[str, Charge] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _first_traversal),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _scan(0, STRING_FACTOR)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _scan(0, STRING_FACTOR)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _double_scan),
    "join": _join, "find": _find, "findAll": _find, "containsIP": _contains_ip, "containsCIDR": _contains_cidr, "validate": _validate,
    "_==_": _equals, "_!=_": _smaller,
}  # fmt: skip
_STANDARD: dict[str, Charge] = {
    "starts_with_string": lambda args, _: math.ceil(size(args[1]) * STRING_FACTOR),
    "ends_with_string": lambda args, _: math.ceil(size(args[1]) * STRING_FACTOR),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), lambda args, _: math.ceil(size(args[0]) * STRING_FACTOR)
    ),
    "in_list": lambda args, _: size(args[1]),
    **{f"{word}_{kind}": _smaller for word in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")},
    "add_string": _both, "add_bytes": _both, "matches": _matches, "matches_string": _matches, "contains_string": _contains,
}  # fmt: skip
