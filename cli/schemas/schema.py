"""Generates JSON schemas from types: a type becomes a rule, and the comment at a field becomes its description.

Draft 7, because editors support it. The code refuses everything that a schema refuses, and more than a schema can express. Only a null
differs: it means "not set" for the code, and is invalid in a schema.
"""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from cli.schemas.answers import ANSWERS, Trouble
from dra.quantity import Quantity
from dra.wire import Opaque
from webhook.dialects import REPLACED, TARGETS, VOCABULARIES, Outcome, Position, Role, plain
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Schema = dict[str, Any]

CONFIGURATION = "config"
NAMES = (CONFIGURATION, *ANSWERS)
_DRAFT = "http://json-schema.org/draft-07/schema#"
_REFERENCE = "#/definitions/{name}"
_ERRORS = "What could not be read; absent if everything was read."
# The fields that name a target.
_TARGETS_NAMED = (("Row", "target"), ("Dialect", "target"), ("Target", "instead"), ("Target", "virtual"))
# A field, a directive for a tool, and a comment.
_FIELD = re.compile(r"    (\w+): [^#]*(?:# (?:type: ignore|noqa)[^#]*)?(?:# (.*))?").fullmatch
_MODULE = re.compile(r" \(`webhook\.[^)]*\)")  # a reference for readers of the code
_COMMENT = re.compile(r"    # (.*)").fullmatch


def schema_of(name: str) -> Schema:
    """Make the schema of a name among NAMES."""
    if name == CONFIGURATION:
        (reference,), definitions = schemas_of_types([type(Configuration().file)])
        root = definitions.pop(reference["$ref"].rpartition("/")[2])
        # Keep only the roles and outcomes that a table can have without code, by the position of its keys.
        row = definitions["Row"]
        members = row["properties"]
        known_roles: set[Role] = set()
        row["allOf"] = places = []
        for position, roles in plain.ROLES.items():
            known_roles.update(roles)
            stands: Schema = {"properties": {"place": {"const": position.value}}}
            if position is not Position.RESOURCE:  # the default
                stands["required"] = ["place"]
            places.append({"if": stands, "then": {"properties": {"role": {"enum": _values(roles)}}}})
        _choose(members["role"], _values(known_roles))
        # Leave out the outcomes that only code can decide.
        _choose(members["outcome"], sorted((*REPLACED, Outcome.LEFT)))
        for narrowed in ("Role", "Outcome"):
            del definitions[narrowed]
        # Names of our targets and dialects, which editors suggest; a file may also name one of its own.
        targets = {"examples": sorted(TARGETS)}
        dialects = {"examples": [vocabulary.table.name for vocabulary in VOCABULARIES]}
        for owner, field in _TARGETS_NAMED:
            properties = definitions[owner]["properties"]
            properties[field] |= targets
        fields = root["properties"]
        fields["disabled"]["items"] |= dialects
        fields["classes"]["propertyNames"] = targets
        fields["keys"]["propertyNames"] = dialects
        for vocabulary in VOCABULARIES:
            table = vocabulary.table
            fields[table.name]["description"] = f"Options of {table.title}."
        return {"$schema": _DRAFT, **root, "definitions": definitions}
    types = ANSWERS[name]
    parts, definitions = schemas_of_types([*types, Trouble])
    *answers, trouble = parts
    errors = {"type": "array", "items": trouble, "description": _ERRORS}
    for type_ in types:
        answer = definitions[type_.__name__]
        answer["properties"]["errors"] = errors
    body = answers[0] if len(answers) == 1 else {"anyOf": answers}
    title = f"drawbridge {name} -o json"
    return {"$schema": _DRAFT, "title": title, **body, "definitions": definitions}


def text_of(name: str) -> str:
    """Write a schema as it is in docs/schemas."""
    return json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"


def schemas_of_types(types: list[type]) -> tuple[list[Schema], dict[str, Schema]]:
    """Make the schemas of types and of the types of their fields, with a description of every field that has a comment."""
    components = msgspec.json.schema_components(
        types,
        schema_hook=_schema_of_type,
        ref_template=_REFERENCE,
    )
    parts, definitions = list(components[0]), dict(components[1])
    for definition in definitions.values():
        if "description" in definition:  # with the indentation of the docstring, before Python 3.13
            definition["description"] = inspect.cleandoc(definition["description"])
    # List the structs, and the structs of their fields.
    structs: set[type[msgspec.Struct]] = set()
    waiting: list[Any] = [msgspec.inspect.type_info(type_) for type_ in types]
    while waiting:
        type_info = waiting.pop()
        if isinstance(type_info, msgspec.inspect.StructType):
            if type_info.cls in structs:
                continue
            structs.add(type_info.cls)
            waiting += [field.type for field in type_info.fields]
        waiting += [
            getattr(type_info, part) for part in ("item_type", "key_type", "value_type") if hasattr(type_info, part)
        ]
        waiting += getattr(type_info, "types", ())
    for struct in structs:
        properties = definitions[struct.__name__]["properties"]
        encoded = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
        for name, text in _comments(struct):
            properties[encoded[name]].setdefault("description", text)
    return parts, definitions


def _schema_of_type(type_: type) -> Schema:
    if type_ is Quantity:
        return {"type": ["string", "number"]}
    if type_ is Opaque:
        return {"description": "any JSON value"}
    raise NotImplementedError(type_)


def _comments(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield the comment above or behind each field, of the class and its bases."""
    for cls in struct.__mro__:
        above: list[str] = []
        for line in _lines(cls):
            if comment := _COMMENT(line):
                above.append(comment[1])
                continue
            field = _FIELD(line)
            texts = [*above, *([field[2]] if field and field[2] else [])]
            if field and texts:
                text = _MODULE.sub("", " ".join(texts))
                yield field[1], text[0].upper() + text[1:]
            above = []


@cache
def _lines(cls: type) -> tuple[str, ...]:
    """Return the source of a class, cached, because its whole file is parsed. A class that a function created has no source."""
    try:
        return tuple(inspect.getsource(cls).splitlines())
    except (OSError, TypeError):
        return ()


def _choose(member: Schema, values: list[str]) -> None:
    """Replace a reference to all values by some of them, because editors would suggest all."""
    del member["$ref"]
    member["enum"] = values


def _values(roles: Iterable[Role]) -> list[str]:
    return sorted({Role.NONE.value, *(role.value for role in roles)})
