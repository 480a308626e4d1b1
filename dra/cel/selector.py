"""A compiled expression: its type, its cost, the fields that it reads, and its evaluation."""

from __future__ import annotations

import sys
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from dra.cache import Cache
from dra.cel.cost import worst_case
from dra.cel.environment import GATES, STORED, Env, environment, last_change
from dra.cel.evaluation.account import (
    BUDGET,
    CHARGED,
    CHECK_INTERVAL,
    COST_PER_STEP,
    NEXT_CHECK,
    SPENT,
    open_frame,
    settle,
)
from dra.cel.evaluation.compiler import Compiler
from dra.cel.reads import Reads, reads_of
from dra.cel.syntax import parse
from dra.cel.tree import height_of
from dra.cel.typecheck import check_output, check_types
from dra.cel.values import Fatal, Value, type_name
from dra.errors import OutOfBudget, SelectorError, SelectorRunError
from dra.semver import Version
from dra.server import CURRENT, server_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.budget import Budget
    from dra.cel.device_view import DeviceView, TextView
    from dra.cel.evaluation.compiler import Closure
    from dra.cel.types import Type

# The frames of Python's stack that a tree of tree.MAX_HEIGHT levels may need: about ten for each level.
_EXTRA_STACK = 8_000
_USUAL = server_of().gates

T = TypeVar("T")

Derived = bool | int | str | Version | list[bool] | list[int] | list[str] | list[Version]


class Selector:
    """A compiled expression, made by `compile`."""

    __slots__ = ("_blank", "_closure", "max_cost", "reads", "result_type", "text")

    def __init__(
        self,
        text: str,
        env: Env,
        *,
        gates: frozenset[str] = _USUAL,
        minor: int = CURRENT,
        derived: bool,
        budget: Budget | None = None,
    ) -> None:
        names = environment(env, gates, minor)
        root = parse(text)
        if budget is not None:
            # Types and scopes grow with each level of the tree, and each pass walks them at every level.
            budget.charge(height_of(root) ** 2 // 2)
        check_types(root, names, budget)
        check_output(root.type, names, derived=derived)
        self.text = text
        self.result_type: Type = root.type
        self.max_cost: int = worst_case(root, since_38=names.since_38)
        self.reads: Reads = reads_of(root)
        compiler = Compiler(names, budget)
        self._closure: Closure = compiler.closure(root)
        self._blank = open_frame((), compiler.variables)

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, view: DeviceView, budget: Budget | None = None) -> bool:
        """Whether the device is selected; the evaluation is charged to the budget."""
        value = self.evaluate(view, budget)
        if value is True or value is False:
            return bool(value)
        raise SelectorRunError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def evaluate(self, view: DeviceView | TextView, budget: Budget | None = None) -> Value:
        """Return the value of an expression of any type. Kubernetes' cost limit and MAX_WORK apply with and without a budget."""
        if view.broken:
            raise SelectorRunError(view.broken)
        frame = [*view.slots, *self._blank]
        if budget is not None:
            frame[NEXT_CHECK], frame[BUDGET] = CHECK_INTERVAL, budget
        try:
            try:
                return self._closure(frame)
            except RecursionError:
                frame[SPENT] = frame[CHARGED] = 0
                return _with_more_stack(self._closure, frame)
        except Fatal as error:
            raise SelectorRunError(str(error)) from error
        finally:
            if frame[SPENT] > frame[NEXT_CHECK]:
                settle(frame)
            elif budget is not None:
                budget.charge(1 + (frame[SPENT] - frame[CHARGED]) // COST_PER_STEP)

    def derive(self, view: DeviceView | TextView, budget: Budget | None = None) -> Derived:
        """Return the value of a derived attribute; raise SelectorRunError for a type that it cannot have."""
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


# Compiled expressions, and the errors of those that do not compile.
_COMPILED: Cache[Selector | SelectorError] = Cache(16 << 20)


def compile(  # noqa: A001 - used as `cel.compile`
    text: str,
    env: Env = STORED,
    *,
    gates: frozenset[str] = _USUAL,
    minor: int = CURRENT,
    derived: bool = False,
    budget: Budget | None = None,
) -> Selector:
    """Compile an expression and charge the budget, or return the expression from the cache.

    The feature gates matter for NEW only. `minor` is the server's version. `derived` says that the expression belongs to a derived attribute, whose type
    may differ from bool.
    """
    gates, minor = gates & GATES, last_change(minor)
    key = text, env, gates, minor, derived
    compiled = _COMPILED.get(key)
    if compiled is None:
        if budget is not None:
            budget.charge(100 + 8 * len(text))
        make_selector = partial(Selector, text, env, gates=gates, minor=minor, derived=derived, budget=budget)
        try:
            compiled = _compile(make_selector)
        except RecursionError:
            compiled = _with_more_stack(_compile, make_selector)
        _COMPILED.put(key, compiled, 1500 + 50 * len(text))
    if isinstance(compiled, SelectorError):
        # A new error each time: raising one object repeatedly would grow its traceback.
        raise type(compiled)(compiled.message, compiled.position)
    return compiled


def compile_or_none(text: str) -> Selector | None:
    """Compile an expression, or return None if it is empty or invalid, which validation reports."""
    try:
        return compile(text) if text else None
    except SelectorError:
        return None


def _compile(make_selector: Callable[[], Selector]) -> Selector | SelectorError:
    try:
        return make_selector()
    except SelectorError as error:
        return error.with_traceback(None)


class _MoreStack:
    """A higher recursion limit. All threads share the limit, so it lasts until the last thread leaves the context."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._usual = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._usual = sys.getrecursionlimit()
                sys.setrecursionlimit(self._usual + _EXTRA_STACK)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setrecursionlimit(self._usual)


_MORE_STACK = _MoreStack()


def _with_more_stack(work: Callable[..., T], *arguments: Any) -> T:
    """Repeat work that exceeded the recursion limit, with a higher limit. The height of the tree bounds the depth."""
    with _MORE_STACK:
        try:
            return work(*arguments)
        except RecursionError:
            raise OutOfBudget("the expression is nested too deeply for the remaining stack") from None
