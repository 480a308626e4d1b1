"""A compiled expression: its type, its cost, what it reads, and how to evaluate it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from dra.cache import Cache
from dra.cel.cost import worst_case
from dra.cel.environment import STORED, Env, environment
from dra.cel.evaluation.account import BUDGET, CHARGED, INTERVAL, LOOK, SPENT, UNITS, open_frame, settle
from dra.cel.evaluation.compiler import Compiler
from dra.cel.reads import Reads, reads_of
from dra.cel.syntax import parse
from dra.cel.tree import height_of
from dra.cel.typecheck import check, check_output
from dra.cel.values import Fatal, Value, type_name
from dra.errors import OutOfBudget, SelectorError, SelectorRunError
from dra.semver import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.budget import Budget
    from dra.cel.device_view import DeviceView, TextView
    from dra.cel.evaluation.compiler import Closure
    from dra.cel.types import Type

# Frames of Python's stack for trees of tree.MAX_HEIGHT levels, of which each takes a handful.
_ROOM = 8_000

T = TypeVar("T")

Derived = bool | int | str | Version | list[bool] | list[int] | list[str] | list[Version]


class Selector:
    """An expression that compiled. Made by `compile`."""

    __slots__ = ("_blank", "_closure", "max_cost", "reads", "result_type", "text")

    def __init__(
        self,
        text: str,
        env: Env,
        *,
        list_attributes: bool,
        consumable_capacity: bool,
        derived: bool,
        budget: Budget | None = None,
    ) -> None:
        names = environment(env, list_attributes=list_attributes, consumable_capacity=consumable_capacity)
        root = parse(text)
        if budget is not None:
            # Types and scopes grow with each level, and each pass goes through them on each.
            budget.charge(height_of(root) ** 2 // 2)
        check(root, names, budget)
        check_output(root.type, names, derived=derived)
        self.text = text
        self.result_type: Type = root.type
        self.max_cost: int = worst_case(root)
        self.reads: Reads = reads_of(root)
        compiler = Compiler(names, budget)
        self._closure: Closure = compiler.closure(root)
        self._blank = open_frame((), compiler.variables, None)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, view: DeviceView, budget: Budget | None = None) -> bool:
        """Whether the device is selected; the evaluation is charged to the budget, which may end it."""
        value = self.evaluate(view, budget)
        if value is True or value is False:
            return bool(value)
        raise SelectorRunError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def evaluate(self, view: DeviceView | TextView, budget: Budget | None = None) -> Value:
        """Return whatever the expression gives; for rules that are not selectors. Without a budget Kubernetes' limits end it."""
        if view.broken:
            raise SelectorRunError(view.broken)
        frame = [*view.slots, *self._blank]
        if budget is not None:
            frame[LOOK], frame[BUDGET] = INTERVAL, budget
        try:
            try:
                return self._closure(frame)
            except RecursionError:
                frame[SPENT] = frame[CHARGED] = 0
                return _with_room(self._closure, frame)
        except Fatal as error:
            raise SelectorRunError(str(error)) from error
        finally:
            if frame[SPENT] > frame[LOOK]:
                settle(frame)
            elif budget is not None:
                budget.charge(1 + (frame[SPENT] - frame[CHARGED]) // UNITS)

    def derive(self, view: DeviceView | TextView, budget: Budget | None = None) -> Derived:
        """Return the value of a derived attribute, or fail on what cannot be one."""
        value = self.evaluate(view, budget)
        scalars = (bool, int, str, Version)
        if type(value) is list:
            kinds = {type(element) for element in value}
            if len(kinds) > 1:
                raise SelectorRunError(f"expected all list elements to be {type_name(value[0])}")
            if not kinds <= set(scalars):
                raise SelectorRunError(f"unsupported list element type: {type_name(value[0])}")
        elif type(value) not in scalars:
            raise SelectorRunError(f"unsupported CEL return type: {type_name(value)}")
        derived: Derived = value
        return derived


# Compiled expressions, and what is wrong with those that do not compile.
_COMPILED: Cache[Selector | SelectorError] = Cache(16 << 20)


def compile(  # noqa: A001 - `cel.compile` says what it is
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
        arguments = (*key, budget)
        try:
            made = _compile(*arguments)
        except RecursionError:
            made = _with_room(_compile, *arguments)
        _COMPILED.put(key, made, 1500 + 50 * len(text))
    if isinstance(made, SelectorError):
        # A new one each time: an error that is raised again and again collects the frames of all that raised it.
        raise type(made)(made.message, made.position)
    return made


def compile_or_none(text: str) -> Selector | None:
    """Compile an expression; None where there is none, and where it is wrong, which is said where the object is judged."""
    try:
        return compile(text) if text else None
    except SelectorError:
        return None


def _compile(  # noqa: PLR0917 - the key, as it is
    text: str, env: Env, list_attributes: bool, consumable_capacity: bool, derived: bool, budget: Budget | None
) -> Selector | SelectorError:
    try:
        return Selector(
            text,
            env,
            list_attributes=list_attributes,
            consumable_capacity=consumable_capacity,
            derived=derived,
            budget=budget,
        )
    except SelectorError as error:
        return error.with_traceback(None)


def _with_room(work: Callable[..., T], *arguments: Any) -> T:
    """Do what Python's stack was too short for with more of it: the height of trees bounds how much that can be."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _ROOM)
    try:
        return work(*arguments)
    except RecursionError:
        raise OutOfBudget("too little of the stack is left for an expression that is nested so deeply") from None
    finally:
        sys.setrecursionlimit(limit)
