"""Makes the options of a server command from its settings struct, whose fields declare the types, defaults and help of the options.

A field annotated with a `Flag` becomes an option. A field annotated with `OPTIONS` is a struct whose fields become options. The command
gets the settings as one value.
"""

from __future__ import annotations

from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

from cli.options import AddressType, FiniteNumber, all_of
from serving.flag import OPTIONS, Flag
from serving.http import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cli.options import Decorator

UNIX = "unix:"
S = TypeVar("S", bound=msgspec.Struct)


class _Field(NamedTuple):
    """A field that becomes an option. Without a flag, the field is a struct whose fields become options."""

    name: str
    type: Any
    default: Any
    flag: Flag | None

    @property
    def option(self) -> str:
        """The name of the option, without its dashes."""
        return (self.flag and self.flag.name) or self.name.replace("_", "-")

    @property
    def parameter(self) -> str:
        """The name of click's parameter."""
        return self.option.replace("-", "_")


def options_of(kind: type[S], called: str = "settings") -> Decorator:
    """Add an option for each setting, and pass the settings to the command as one value."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_settings(**given: Any) -> Any:
            settings = _read(kind, given)
            return function(**{called: settings}, **given)

        return all_of([*_options(kind)])(with_settings)

    return add


def _fields(kind: type[msgspec.Struct]) -> Iterator[_Field]:
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            type_, note = get_args(hint)
            default = None if field.default is msgspec.NODEFAULT else field.default
            yield _Field(field.name, type_, default, None if note == OPTIONS else note)


def _read(kind: type[S], given: dict[str, Any]) -> S:
    """Return the settings, and remove their parameters from `given`."""
    values: dict[str, Any] = {}
    for field in _fields(kind):
        if field.flag is None:
            values[field.name] = _read(field.type, given)
            continue
        value = given.pop(field.parameter)
        if field.flag.absent and not value:
            value = field.flag.absent()
        values[field.name] = field.type(value) if _is_enum(field.type) else value
    return kind(**values)


def _options(kind: type[msgspec.Struct]) -> Iterator[Decorator]:
    for field in _fields(kind):
        flag, default = field.flag, field.default
        if flag is None:
            yield from _options(field.type)
            continue
        name = f"--{field.option}"
        if bool in (field.type, *get_args(field.type)):
            if default is not False:
                name = f"{name}/--no-{field.option}"
            yield click.option(name, field.parameter, is_flag=True, default=default, help=flag.help)
            continue
        if isinstance(default, (Address, Enum)) or (flag.read and default is not None):
            default = flag.show(default)
        type_ = _type_of(field.type, flag)
        if flag.absent or (type_ is None and default is None):
            default = ""
        yield click.option(
            name,
            field.parameter,
            type=type_,
            metavar=flag.metavar or None,
            multiple=get_origin(field.type) is tuple,
            default=default,
            show_default=bool(default),
            help=flag.help,
        )


def _type_of(hint: Any, flag: Flag) -> click.ParamType[Any] | None:
    """Return click's type for an option; None for text."""
    if flag.read:
        return _Reader(flag.read)
    if _is_enum(hint):
        return click.Choice([member.value for member in hint])
    members = get_args(hint) or (hint,)
    if get_origin(hint) is Literal:
        return click.Choice(members)
    if Path in members:
        return PlaceType()
    if Address in members:
        return AddressType()
    if float in members:
        return FiniteNumber(flag.least, flag.most)
    return None


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


class _Reader(click.ParamType[Any]):
    """Text that the setting's own function parses."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PlaceType(click.ParamType["Address | Path"]):
    """unix:PATH, or HOST:PORT."""

    name = "unix:PATH|HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address | Path:
        if value.startswith(UNIX):
            path = value.removeprefix(UNIX)
            if not path:
                self.fail(f"{value!r} names no socket", param, ctx)
            return Path(path)
        return AddressType().convert(value, param, ctx)
