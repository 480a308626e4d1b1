"""Writes the list of settings in docs/configuration.md from the JSON schema of the configuration file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cli.schemas.schema import CONFIGURATION, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Schema = dict[str, Any]

OBJECT_FIELDS = {"apiVersion", "kind", "metadata"}
# Types that other pages describe: docs/keys.md, and Kubernetes' pages about ResourceSlices.
DESCRIBED_ELSEWHERE = {"Dialect", "Target", "DeviceAttribute", "DeviceCapacity"}
PAGE = re.compile(r"`?docs/([\w-]+\.md)(#[\w-]+)?`?")


def item_list() -> str:
    """List each field, and below it the fields of its type."""
    schema = schema_of(CONFIGURATION)
    fields = {name: field for name, field in schema["properties"].items() if name not in OBJECT_FIELDS}
    return "\n".join(items(fields, schema["definitions"]))


def key_field_list() -> str:
    """List each field of a key, for docs/keys.md."""
    types = schema_of(CONFIGURATION)["definitions"]
    return "\n".join(items(types["Row"]["properties"], types, tuple(types["Row"]["required"])))


def items(fields: Schema, types: Schema, required: tuple[str, ...] = (), indent: str = "") -> Iterator[str]:
    for name, field in fields.items():
        kind, owner = kind_of(field)
        struct = types.get(owner, {})
        members = {} if owner in DESCRIBED_ELSEWHERE else struct.get("properties", {})
        if kind == "struct" and not members and "enum" not in struct:  # a dialect without options
            continue
        choice = {"enum": struct["enum"]} if "enum" in struct else {}
        details = ", ".join(["required"] * (name in required) + values(field | choice, "" if choice else kind))
        text = PAGE.sub(as_link, field.get("description", ""))
        if examples := field.get("propertyNames", {}).get("examples"):
            text += f" Names: {', '.join(f'`{example}`' for example in examples)}."
        yield f"{indent}- `{name}`{f' ({details})' if details else ''}{f': {text}' if text else ''}"
        if not members.keys() <= fields.keys():  # a recursive type has the same fields
            yield from items(members, types, tuple(struct.get("required", ())), f"{indent}  ")


def kind_of(field: Schema) -> tuple[str, str]:
    """Return the kind of a field (struct, list, map, or "" for a value), and the name of the type of its parts, if they are structs."""
    if "anyOf" in field:
        return kind_of(field["anyOf"][0])
    if "$ref" in field:
        return "struct", field["$ref"].rpartition("/")[2]
    for kind, parts in (("list", "items"), ("map", "additionalProperties")):
        if parts in field:
            return kind, kind_of(field[parts])[1]
    return "", ""


def values(field: Schema, kind: str) -> list[str]:
    """List the values of a field, the default first. For a list or map, return only its kind."""
    choices = [*field.get("enum", ()), *(value for part in field.get("anyOf", ()) for value in part.get("enum", ()))]
    default = field.get("default")
    if kind:
        return [kind] * (kind != "struct")
    first = ["not set"] if "anyOf" in field else [] if default in (None, "") else [as_code(default)]
    return first + [as_code(choice) for choice in choices if choice != default]


def as_code(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value).lower()


def as_link(match: re.Match[str]) -> str:
    page, anchor = match[1], match[2] or ""
    return f"[below]({anchor})" if page == "configuration.md" else f"[{page}]({page}{anchor})"
