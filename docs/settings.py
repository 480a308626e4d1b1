"""Writes the list of settings in docs/configuration.md from the schema of the configuration file, which is made from its types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from analysis.schemas.schema import CONFIGURATION, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Schema = dict[str, Any]

EACH_FILE = {"apiVersion", "kind", "metadata"}
# Types with pages of their own: docs/keys.md, and Kubernetes' for a ResourceSlice.
ELSEWHERE = {"Dialect", "Target", "DeviceAttribute", "DeviceCapacity"}
PAGE = re.compile(r"`?docs/([\w-]+\.md)(#[\w-]+)?`?")


def listed() -> str:
    """Write an item for each field, with those of its members below it."""
    schema = schema_of(CONFIGURATION)
    fields = {name: field for name, field in schema["properties"].items() if name not in EACH_FILE}
    return "\n".join(items(fields, schema["definitions"]))


def of_rows() -> str:
    """Write an item for each field of a row of a table, for docs/keys.md."""
    types = schema_of(CONFIGURATION)["definitions"]
    return "\n".join(items(types["Row"]["properties"], types, tuple(types["Row"]["required"])))


def items(fields: Schema, types: Schema, required: tuple[str, ...] = (), indent: str = "") -> Iterator[str]:
    for name, field in fields.items():
        kind, owner = kind_of(field)
        struct = types.get(owner, {})
        members = {} if owner in ELSEWHERE else struct.get("properties", {})
        if kind == "struct" and not members and "enum" not in struct:  # a dialect without options
            continue
        choice = {"enum": struct["enum"]} if "enum" in struct else {}
        said = ", ".join(["required"] * (name in required) + values(field | choice, "" if choice else kind))
        text = PAGE.sub(linked, field.get("description", ""))
        if names := field.get("propertyNames"):
            text += f" Names: {', '.join(f'`{one}`' for one in names['examples'])}."
        yield f"{indent}- `{name}`{f' ({said})' if said else ''}{f': {text}' if text else ''}"
        if not members.keys() <= fields.keys():  # a recursive type has the same fields
            yield from items(members, types, tuple(struct.get("required", ())), f"{indent}  ")


def kind_of(field: Schema) -> tuple[str, str]:
    """Return whether a field is a struct, a list, a map or a value, and the type of its parts if it is ours."""
    if "anyOf" in field:
        return kind_of(field["anyOf"][0])
    if "$ref" in field:
        return "struct", field["$ref"].rpartition("/")[2]
    for kind, parts in (("list", "items"), ("map", "additionalProperties")):
        if parts in field:
            return kind, kind_of(field[parts])[1]
    return "", ""


def values(field: Schema, kind: str) -> list[str]:
    """List the values of a field, the default first; if the default does not show the type, its type."""
    choices = [*field.get("enum", ()), *(one for part in field.get("anyOf", ()) for one in part.get("enum", ()))]
    default = field.get("default")
    if kind:
        return [kind] * (kind != "struct")
    first = ["not set"] if "anyOf" in field else [] if default in (None, "") else [written(default)]
    return first + [written(choice) for choice in choices if choice != default]


def written(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value).lower()


def linked(found: re.Match[str]) -> str:
    page, place = found[1], found[2] or ""
    return f"[below]({place})" if page == "configuration.md" else f"[{page}]({page}{place})"
