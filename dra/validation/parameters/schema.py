"""The forms of values in driver parameters, as the drivers' JSON decoders and validators take them.

A null is "not set", as in Go. What a form finds is bounded by what is written: forms are no deeper than the table that is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dra.errors import QuantityError
from dra.pointer import escape
from dra.quantity import Quantity
from dra.validation.fields.shape import nearest
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # What is wrong with a text; nothing if it is fine.
    Rule = Callable[[str], str]
    # What is wrong with an object of which each field is fine by itself.
    Judge = Callable[[Mapping[str, Any], str], Problems]

# Letters of a value that a message repeats.
_SHOWN = 60


def show(value: object) -> str:
    """Write a value for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def refuse(path: str, message: str, hint: str = "") -> Problem:
    """Say that the driver does not take a value."""
    return Problem("D703", path, message, hint)


class Form:
    """Any value."""

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a value that is not null."""
        del value, path
        yield from ()


class TextForm(Form):
    """A text, of which `rule` may say what is wrong."""

    def __init__(self, rule: Rule | None = None) -> None:
        self._rule = rule

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a text."""
        if not isinstance(value, str):
            hint = f'quote it: "{value}"' if isinstance(value, int | float) else ""
            yield refuse(path, f"expected a text, got {show(value)}", hint)
        elif self._rule is not None and (wrong := self._rule(value)):
            yield refuse(path, f"{show(value)} {wrong}")


class FlagForm(Form):
    """True or false."""

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a truth value."""
        if not isinstance(value, bool):
            yield refuse(path, f"expected true or false, got {show(value)}", "write it without quotes")


class WholeForm(Form):
    """A whole number of a range, but for some."""

    def __init__(self, low: int, high: int, *, but: tuple[int, ...] = (), also: tuple[int, ...] = ()) -> None:
        self._range = range(low, high + 1)
        self._but = but
        self._also = also

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a number."""
        if type(value) is not int:
            hint = "write it without quotes" if isinstance(value, str) else ""
            yield refuse(path, f"expected a whole number, got {show(value)}", hint)
        elif value in self._but:
            yield refuse(path, f"{value} is reserved")
        elif value not in self._range and value not in self._also:
            more = "".join(f" or {one}" for one in self._also)
            low, high = self._range[0], self._range[-1]
            message = f"{show(value)} is not from {low} to {high}{more}"
            yield refuse(path, message)


class ChoiceForm(Form):
    """One of a few texts."""

    def __init__(self, *values: str, empty: bool = False) -> None:
        self._values = list(values)
        self._empty = empty

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a choice."""
        if value in self._values or (self._empty and value == ""):
            return
        meant = nearest(value, self._values) if isinstance(value, str) else ""
        hint = f"did you mean {meant}?" if meant else ""
        yield refuse(path, f"{show(value)} is not one of {', '.join(self._values)}", hint)


class AmountForm(Form):
    """A quantity, at least as large as `least`."""

    def __init__(self, least: str) -> None:
        self._least = Quantity.parse(least)

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a quantity."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            yield refuse(path, f"expected an amount such as 16Gi, got {show(value)}")
            return
        try:
            amount = Quantity.parse(value.strip(" ") if isinstance(value, str) else repr(value))
        except QuantityError as error:
            yield refuse(path, str(error))
            return
        if amount < self._least:
            yield refuse(path, f"{show(value)} is less than {self._least}")


class ListForm(Form):
    """A list of values of one form."""

    def __init__(self, items: Form) -> None:
        self.items = items

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a list."""
        if not isinstance(value, list):
            yield refuse(path, f"expected a list, got {show(value)}", "begin the line with `- `")
            return
        for index, item in enumerate(value):
            if item is not None:
                yield from self.items.judge(item, f"{path}/{index}")


class MapForm(Form):
    """Values of one form, by names of which `rule` may say what is wrong."""

    def __init__(self, values: Form, rule: Rule | None = None) -> None:
        self.values = values
        self._rule = rule

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with a mapping."""
        if not isinstance(value, dict):
            yield refuse(path, f"expected a mapping, got {show(value)}")
            return
        for name, member in value.items():
            at = f"{path}/{escape(name)}"
            wrong = self._rule(name) if self._rule is not None else ""
            if wrong:
                yield refuse(at, f"{show(name)} {wrong}")
            if member is not None:
                yield from self.values.judge(member, at)


class ObjectForm(Form):
    """Named fields and no others; `needed` ones must be there, and `rule` looks together at those that are well formed."""

    def __init__(
        self,
        fields: Mapping[str, Form],
        *,
        needed: tuple[str, ...] = (),
        rule: Judge | None = None,
        foreign: Mapping[str, str] | None = None,
    ) -> None:
        self.fields = fields
        self._needed = needed
        self._rule = rule
        # Fields that people write here and that do not exist, and what to do instead.
        self._foreign = foreign or {}

    def judge(self, value: Any, path: str) -> Problems:
        """Say what is wrong with an object."""
        if not isinstance(value, dict):
            yield refuse(path, f"expected an object, got {show(value)}")
            return
        well_formed = dict(value)
        for name, member in value.items():
            at = f"{path}/{escape(name)}"
            form = self.fields.get(name)
            if form is None:
                yield self._unknown(name, value, at)
            elif member is not None:
                for problem in form.judge(member, at):
                    yield problem
                    if problem.code == "D703" and problem.path == at:
                        well_formed.pop(name, None)
        for name in self._needed:
            if value.get(name) in (None, ""):
                yield refuse(path, f"{name} is missing", f"add {name}")
        if self._rule is not None:
            for problem in self._rule(well_formed, path):
                # What is said of the object itself is that something is missing, and what is malformed is there.
                if problem.path != path or len(well_formed) == len(value):
                    yield problem

    def _unknown(self, name: str, value: Mapping[str, Any], at: str) -> Problem:
        hint = self._foreign.get(name, "")
        if not hint:
            unset = [field for field in self.fields if field not in value]
            near = nearest(name, unset)
            known = ", ".join(self.fields) or "no field at all"
            hint = f"it has {known}"
            if near:
                hint = f"did you mean {near}?"
        return Problem("D702", at, f"unknown field {show(name)}", hint)
