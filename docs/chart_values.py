"""Generates the chart's values.yaml and values.schema.json from `cli.installation_values`."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import Any

import msgspec

from cli.installation_values import Values
from cli.schemas import CONFIGURATION, schema_of, schemas_of_types
from cluster import manifests

Schema = dict[str, Any]


def values_file() -> str:
    """Write every value with its description and its default."""
    [reference], definitions = schemas_of_types([Values])
    lines = [
        "# Generated from cli/installation_values.py. The values of the chart, and of `drawbridge manifests --values FILE`.",
        *_lines(reference, definitions, msgspec.to_builtins(Values()), ""),
    ]
    return "\n".join(lines) + "\n"


def _lines(reference: Schema, definitions: Schema, defaults: dict[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for name, field in definitions[reference["$ref"].rpartition("/")[2]]["properties"].items():
        prefix = f"{indent}# "
        text = field.get("description", "")
        lines += wrap(text, 120, initial_indent=prefix, subsequent_indent=prefix, break_on_hyphens=False)
        if "$ref" in field:
            lines += [f"{indent}{name}:", *_lines(field, definitions, defaults[name], f"{indent}  ")]
        else:
            lines.append(f"{indent}{manifests.dump([{name: defaults[name]}]).rstrip()}")
    return lines


def values_schema() -> str:
    """Write the schema of the values, in which `configuration` has the schema of configurations.

    Every value is required: Helm removes a value that is set to null, and a template would fail without it.
    """
    _, definitions = schemas_of_types([Values])
    for struct in definitions.values():
        struct["required"] = list(struct["properties"])
    schema = definitions.pop("Values")
    configuration = schema_of(CONFIGURATION)
    properties = schema["properties"]
    properties["configuration"] |= {"properties": configuration["properties"], "additionalProperties": False}
    properties["global"] = {"type": "object", "description": "Values of a chart that includes this one; unused."}
    definitions |= configuration["definitions"]
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of drawbridge"}
    return json.dumps({**schema, **draft, "definitions": definitions}, indent=1, ensure_ascii=False) + "\n"
