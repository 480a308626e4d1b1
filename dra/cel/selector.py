"""A compiled expression: its type, its cost, what it reads, and how to evaluate it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.cache import Cache
from dra.cel.closures import Compiler
from dra.cel.cost import MAX_COST, worst_case
from dra.cel.environment import STORED, Env, environment
from dra.cel.metered import MeteredCompiler, within_budget
from dra.cel.reads import Reads, reads_of
from dra.cel.syntax import parse
from dra.cel.typecheck import check, check_output
from dra.cel.values import Fatal, Value, type_name
from dra.errors import CostExceeded, SelectorError, SelectorRunError
from dra.semver import Version

if TYPE_CHECKING:
    from dra.budget import Budget
    from dra.cel.device_view import DeviceView
    from dra.cel.types import Type

Derived = bool | int | str | Version | list[bool] | list[int] | list[str] | list[Version]


class Selector:
    """An expression that compiled. Made by `compile`."""

    __slots__ = ("_closure", "_rest", "_steps", "max_cost", "metered", "reads", "result_type", "text")

    def __init__(self, text: str, env: Env, *, list_attributes: bool, consumable_capacity: bool, derived: bool) -> None:
        names = environment(env, list_attributes=list_attributes, consumable_capacity=consumable_capacity)
        root = parse(text)
        result = check(root, names)
        check_output(result, names, derived=derived)
        self.text = text
        self.result_type: Type = result
        self.max_cost: int = worst_case(root)
        self.reads: Reads = reads_of(root)
        self.metered = self.max_cost > MAX_COST
        # Microseconds, at most: about three units of cost are one.
        self._steps = 1 + min(self.max_cost, MAX_COST) // 3
        compiler = MeteredCompiler(names) if self.metered else Compiler(names)
        closure = compiler.closure(root)
        self._closure = within_budget(closure) if self.metered else closure
        # What a frame holds beyond the view: what was spent so far, and the variables.
        self._rest = (0, *[None] * compiler.variables) if self.metered or compiler.variables else ()

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, view: DeviceView, budget: Budget | None = None) -> bool:
        """Whether the device is selected; the evaluation is charged to the budget, which may end it."""
        if view.broken:
            raise SelectorRunError(view.broken)
        if budget is not None:
            budget.charge(self._steps)
        try:
            value = self._closure([*view.slots, *self._rest]) if self._rest else self._closure(view.slots)
        except Fatal as error:
            raise SelectorRunError(str(error)) from error
        if value is True or value is False:
            return bool(value)
        raise SelectorRunError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def evaluate(self, view: DeviceView, budget: Budget | None = None) -> Value:
        """Return whatever the expression gives; for rules that are not selectors."""
        if view.broken:
            raise SelectorRunError(view.broken)
        if budget is not None:
            budget.charge(self._steps)
        try:
            return self._closure([*view.slots, *self._rest])
        except Fatal as error:
            raise SelectorRunError(str(error)) from error

    def derive(self, view: DeviceView, budget: Budget | None = None) -> Derived:
        """Return the value of a derived attribute, or fail on what cannot be one."""
        return _derived(self.evaluate(view, budget))

    def check_cost(self) -> None:
        """Raise if the API server would not take the expression because of what it may cost."""
        if self.max_cost > MAX_COST:
            raise CostExceeded(f"too complex, exceeds cost limit: may cost {self.max_cost}, the limit is {MAX_COST}")


def _derived(value: Value) -> Derived:
    if type(value) in (bool, int, str, Version):
        scalar: Derived = value
        return scalar
    if type(value) is list:
        kinds = {type(element) for element in value}
        if len(kinds) > 1:
            raise SelectorRunError(f"expected all list elements to be {type_name(value[0])}")
        if kinds <= {bool, int, str, Version}:
            elements: Derived = value
            return elements
        raise SelectorRunError(f"unsupported list element type: {type_name(value[0])}")
    raise SelectorRunError(f"unsupported CEL return type: {type_name(value)}")


# Compiled expressions, and what is wrong with those that do not compile.
_COMPILED: Cache[Selector | SelectorError] = Cache(16 << 20)


def compile(  # noqa: A001 - `cel.compile` is what everybody looks for
    text: str,
    env: Env = STORED,
    *,
    list_attributes: bool = False,
    consumable_capacity: bool = True,
    derived: bool = False,
    budget: Budget | None = None,
) -> Selector:
    """Compile an expression; the same text gives the same object while it stays in the cache.

    With `NEW` the expression is judged as in an object that is being created; the gates then matter. `derived` is for
    derived attributes, which may have other types than bool. Compiling, unless it was done before, is charged to the budget.
    """
    key = text, env, list_attributes, consumable_capacity, derived
    made = _COMPILED.get(key)
    if made is None:
        if budget is not None:
            budget.charge(100 + 8 * len(text))
        made = _compiled(text, env, list_attributes, consumable_capacity, derived)
        _COMPILED.put(key, made, 1500 + 50 * len(text))
    if isinstance(made, SelectorError):
        # A new one each time: an error that is raised again and again collects the frames of all who raised it.
        raise type(made)(made.message, made.position)
    return made


def _compiled(
    text: str, env: Env, list_attributes: bool, consumable_capacity: bool, derived: bool
) -> Selector | SelectorError:
    try:
        return Selector(
            text, env, list_attributes=list_attributes, consumable_capacity=consumable_capacity, derived=derived
        )
    except SelectorError as error:
        return error.with_traceback(None)
