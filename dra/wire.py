"""Decodes objects of the Kubernetes API into values, and encodes values as JSON.

All wire types are frozen msgspec Structs. Decoding drops unknown fields, so a decoded object is never written back: the
process sends only patches, and objects that it makes itself (docs/architecture.md, "Patches, not objects"). Decoded
values hold the fields as the sender wrote them; `dra.objects.defaults` applies the API server's defaults.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from dra.pointer import escape, of_path
from dra.quantity import Quantity, from_json

T = TypeVar("T")
_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_TOO_DEEP = "nested too deeply to be read"
Json = Any  # a JSON value: dict, list, str, int, float, bool or None
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Opaque:
    """A JSON value kept as bytes, because `{}` takes 64 bytes as a dict. `value` decodes the bytes on each call."""

    __slots__ = ("json",)

    def __init__(self, json: bytes) -> None:
        self.json = json

    @classmethod
    def encode(cls, value: Json) -> Opaque:
        """Encode a parsed value in canonical form, so that equal values have equal bytes."""
        return cls(msgspec.json.encode(value, order="deterministic"))

    def value(self) -> Json:
        """Decode the value. A caller that kept the result would lose the saving of memory."""
        return msgspec.json.decode(self.json)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)

    def __repr__(self) -> str:
        return f"Opaque({self.json!r})"


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every wire type. Values are trees without cycles, so the garbage collector does not track them.

    Each type repeats `frozen=True, kw_only=True`: msgspec inherits only `frozen`, and type checkers inherit neither.
    """


class WireError(ValueError):
    """The JSON is not a valid object of its type. `pointer` is the JSON pointer to the invalid value."""

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.message = message
        self.pointer = pointer


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode one JSON document as a wire type."""
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # in a field that the typed decoder skipped
        raise WireError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise WireError(_TOO_DEEP) from error
    return convert(plain, type_)


def convert(value: Json, type_: type[T]) -> T:
    """Convert a parsed JSON value to a wire type. A null means "not set", as in Go."""
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
    """Encode a value as JSON without unset fields, with the keys in a fixed order."""
    return msgspec.json.encode(value, enc_hook=_write, order="deterministic")


def builtins(value: object) -> Json:
    """Convert a value to plain dicts, lists and scalars."""
    # Not msgspec.to_builtins, which keeps tuples.
    return msgspec.json.decode(encode(value))


# Fields that map names to quantities.
_AMOUNTS = frozenset(("limits", "requests"))


def without_nulls(value: Json, *, keep: str = "") -> Json:
    """Drop null members at every depth, except inside members named `keep`.

    As in Go, a null in requests or limits is 0.
    """
    if isinstance(value, list):
        return [without_nulls(item, keep=keep) for item in value]
    if not isinstance(value, dict):
        return value
    present: dict[str, Json] = {}
    for key, member in value.items():
        if key in _AMOUNTS and isinstance(member, dict):
            present[key] = {name: "0" if amount is None else amount for name, amount in member.items()}
        elif member is not None:
            present[key] = member if keep and key == keep else without_nulls(member, keep=keep)
    return present


def copied(value: Json) -> Json:
    """Copy a JSON value deeply. A part that occurs at several places of the value is copied for each of them."""
    if isinstance(value, dict):
        return {key: copied(member) for key, member in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def _read(type_: type, value: Any) -> Any:
    if type_ is Opaque:
        return Opaque.encode(value)
    if type_ is not Quantity:
        raise NotImplementedError(f"no reader for {type_}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        type_text = "null" if value is None else type(value).__name__
        raise ValueError(f"expected a quantity, got {type_text}")  # noqa: TRY004  msgspec adds the path to a ValueError only
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
    # The path of an invalid key is "key` in `$.path".
    pointer = of_path(path.rstrip("`").removeprefix("key` in `"))
    problem, _, field = message.rstrip("`").partition(" field `")
    match problem:
        case "Object contains unknown":
            return WireError(f"unknown field {field!r}", f"{pointer}/{escape(field)}")
        case "Object missing required":
            return WireError(f"field {field!r} is missing", pointer)
    return WireError(message, pointer)
