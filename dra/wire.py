"""How objects of the Kubernetes API become our values, and how values become JSON.

All wire types are frozen msgspec Structs. Fields we do not know are skipped on read; for that reason nothing that was
read is ever written back: only patches and objects of our own leave the process (docs/architecture.md, "Patches, not
objects"). The types keep what was said: defaults of the API server are applied by `dra.objects.defaults`, not here.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from dra.pointer import escape, of_path
from dra.quantity import Quantity, from_json

T = TypeVar("T")
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}  # one a type; the types are few
_TOO_DEEP = "nested too deeply to be read"
Json = Any  # a JSON value: dict, list, str, int, float, bool or None
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Opaque:
    """A JSON value that is kept as its bytes: `{}` is two of them, and 64 as a Python object. `value` reads it anew each time."""

    __slots__ = ("json",)

    def __init__(self, json: bytes) -> None:
        self.json = json

    @classmethod
    def of(cls, value: Json) -> Opaque:
        """Take a parsed value. Equal values are equal bytes, however they were spelled."""
        return cls(msgspec.json.encode(value, order="deterministic"))

    def value(self) -> Json:
        """Read it. The caller drops the result as soon as it can."""
        return msgspec.json.decode(self.json)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def __repr__(self) -> str:
        return f"Opaque({self.json!r})"


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every wire type. Values form trees, so the cycle collector need not look at them.

    Each type repeats `frozen=True, kw_only=True`: msgspec inherits the first only, and type checkers neither.
    """


class WireError(ValueError):
    """JSON that is not an object of the type it claims to be. `pointer` says where."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.message = message
        self.pointer = pointer


def decode(data: bytes | str, type_: type[T]) -> T:
    """Read one JSON document as a wire type."""
    if type_ not in _DECODERS:
        _DECODERS[type_] = msgspec.json.Decoder(type_, dec_hook=_read)
    try:
        decoded: T = _DECODERS[type_].decode(data)
    except msgspec.ValidationError as error:
        if "null" not in str(error):
            raise _wire_error(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise WireError(_TOO_DEEP) from error
    else:
        return decoded
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # in a field that is skipped
        raise WireError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise WireError(_TOO_DEEP) from error
    return convert(plain, type_)


def convert(value: Json, type_: type[T]) -> T:
    """Read a parsed JSON value as a wire type. A null means "not set", as it does in Go."""
    try:
        return msgspec.convert(value, type_, dec_hook=_read)
    except msgspec.ValidationError as error:
        if "null" not in str(error):
            raise _wire_error(error) from error
    except RecursionError as error:
        raise WireError(_TOO_DEEP) from error
    try:
        return msgspec.convert(without_nulls(value), type_, dec_hook=_read)
    except msgspec.ValidationError as error:
        raise _wire_error(error) from error
    except RecursionError as error:
        raise WireError(_TOO_DEEP) from error


def encode(value: object) -> bytes:
    """Write a value as JSON, fields that are not set left out, keys in a fixed order."""
    return msgspec.json.encode(value, enc_hook=_write, order="deterministic")


def builtins(value: object) -> Json:
    """Write a value as plain dicts, lists and scalars."""
    # Not msgspec.to_builtins: that keeps tuples, which are not JSON.
    return msgspec.json.decode(encode(value))


def without_nulls(value: Json, *, keep: str = "") -> Json:
    """Drop members that are null, at every depth but below members of the name `keep`."""
    if isinstance(value, dict):
        present = {key: member for key, member in value.items() if member is not None}
        return {
            key: member if keep and key == keep else without_nulls(member, keep=keep) for key, member in present.items()
        }
    return [without_nulls(item, keep=keep) for item in value] if isinstance(value, list) else value


def copied(value: Json) -> Json:
    """Copy a JSON value, so that no two places in it are one object."""
    if isinstance(value, dict):
        return {key: copied(member) for key, member in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def _read(type_: type, value: Any) -> Any:
    if type_ is Opaque:
        return Opaque.of(value)
    if type_ is not Quantity:
        raise NotImplementedError(f"no reader for {type_}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a quantity, got {type(value).__name__}")  # noqa: TRY004  msgspec adds the path to a ValueError only
    return from_json(value)


def _write(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Opaque):
        return msgspec.Raw(value.json)
    raise NotImplementedError(f"no writer for {type(value)}")


def _wire_error(error: msgspec.ValidationError) -> WireError:
    """Split msgspec's "Expected `int`, got `str` - at `$.spec.devices[0].count`" into message and JSON pointer."""
    message, _, path = str(error).partition(" - at `")
    pointer = of_path(path.rstrip("`"))
    problem, _, field = message.rstrip("`").partition(" field `")
    match problem:
        case "Object contains unknown":
            return WireError(f"unknown field {field!r}", f"{pointer}/{escape(field)}")
        case "Object missing required":
            return WireError(f"field {field!r} is missing", pointer)
    return WireError(message, pointer)
