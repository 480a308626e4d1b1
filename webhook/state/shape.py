"""Checks a JSON value against a Struct type and names every mistake, where msgspec stops at the first.

Each comes with its JSON pointer and what to do. Only what `DrawbridgeConfiguration` is made of is understood: Structs,
dicts, tuples, literals, enums and scalars.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import msgspec
from msgspec import inspect

from dra.pointer import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.wire import Json

Mistake = tuple[str, str, str]


def mistakes(value: Json, type_: type) -> list[Mistake]:
    """List (pointer, what is wrong, what to do) for everything in a value that is not of the type."""
    return list(_check(value, inspect.type_info(type_), ""))


def _check(value: Json, info: inspect.Type, path: str) -> Iterator[Mistake]:
    match info:
        case inspect.StructType():
            yield from _struct(value, info, path)
        case inspect.DictType():
            if not isinstance(value, dict):
                yield _wrong(value, "a map", path)
                return
            for key, member in value.items():
                yield from _check(member, info.value_type, f"{path}/{escape(str(key))}")
        case inspect.VarTupleType():
            if not isinstance(value, list):
                yield _wrong(value, "a list", path)
                return
            for i, item in enumerate(value):
                yield from _check(item, info.item_type, f"{path}/{i}")
        case inspect.UnionType():
            if value is not None:
                yield from _check(value, next(t for t in info.types if not isinstance(t, inspect.NoneType)), path)
        case inspect.LiteralType():
            if value not in info.values:
                yield path, f"{value!r} is not allowed", f"one of {', '.join(map(str, info.values))}"
        case inspect.EnumType():
            values = [str(member.value) for member in info.cls]
            if value not in values:
                yield path, f"{value!r} is not allowed", f"one of {', '.join(v for v in values if v)}"
        case inspect.StrType():
            if not isinstance(value, str):
                yield _wrong(value, "a text", path)
        case inspect.BoolType():
            if not isinstance(value, bool):
                yield _wrong(value, "true or false", path)
        case inspect.IntType():
            if not isinstance(value, int) or isinstance(value, bool):
                yield _wrong(value, "a whole number", path)
        case _:
            raise NotImplementedError(f"no check for {info}")


def _struct(value: Json, info: inspect.StructType, path: str) -> Iterator[Mistake]:
    if not isinstance(value, dict):
        yield _wrong(value, "a map", path)
        return
    fields = {field.encode_name: field for field in info.fields}
    for name, member in value.items():
        if name in fields:
            yield from _check(member, fields[name].type, f"{path}/{escape(str(name))}")
        else:
            close = difflib.get_close_matches(str(name), fields, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(fields)}"
            yield f"{path}/{escape(str(name))}", "unknown field", hint
    for name, field in fields.items():
        if field.required and name not in value:
            yield path, f"{name!r} is missing", f"add {name}"


def _wrong(value: Json, wanted: str, path: str) -> Mistake:
    shown = msgspec.json.encode(value).decode()
    return path, f"expected {wanted}, got {shown if len(shown) < 60 else type(value).__name__}", f"write {wanted}"
