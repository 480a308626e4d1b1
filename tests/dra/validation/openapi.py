"""The fields of pods and of workload kinds, read from an OpenAPI document of Kubernetes (`/openapi/v2`).

    python -m tests.dra.validation.openapi FILE

prints the table of `dra.validation.fields.pod_schema`. FILE is api/openapi-spec/swagger.json of Kubernetes' source. Go's module cache
has this file after the end-to-end binaries were built.
"""

import json
import sys
import textwrap
from pathlib import Path

from dra.objects import POD_TEMPLATES

WIDTH = 118
NAMED = {"Quantity": "amount", "IntOrString": "intOrText", "ObjectMeta": "meta"}


def fields_of(document):
    """Return the fields of each type that a kind with pods uses, with the fields' types in the form of the table."""
    definitions = document["definitions"]
    roots = [f"io.k8s.api.{group or 'core'}.v1.{kind}" for group, kind in POD_TEMPLATES]
    by_kind = {}
    full_names = {}

    def visit(full_name):
        name = full_name.rpartition(".")[2]
        assert full_names.setdefault(name, full_name) == full_name
        if name in by_kind:
            return name
        fields = by_kind[name] = {}
        for field, schema in sorted(definitions[full_name]["properties"].items()):
            judged_elsewhere = field == "metadata" and (full_name in roots or name == "PodTemplateSpec")
            dropped = field == "status" and "metadata" in definitions[full_name]["properties"]
            fields[field] = "any" if judged_elsewhere or dropped else type_of(schema)
        return name

    def type_of(schema):
        if "$ref" in schema:
            full_name = schema["$ref"].rpartition("/")[2]
            if special_type := NAMED.get(full_name.rpartition(".")[2]):
                return special_type
            return visit(full_name) if "properties" in definitions[full_name] else "any"
        match schema["type"]:
            case "array":
                return f"[{type_of(schema['items'])}]"
            case "object":
                return f"{{{type_of(schema['additionalProperties'])}}}"
            case "integer":
                return schema["format"]
            case plain:
                return {"string": "text", "boolean": "flag"}[plain]

    for root in roots:
        visit(root)
    return by_kind


def table(by_kind):
    """Return the table in the form that `pod_schema` reads."""
    lines = []
    for name in sorted(by_kind):
        line = f"{name} = {', '.join(f'{field}:{type_}' for field, type_ in by_kind[name].items())}"
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table(fields_of(json.loads(Path(sys.argv[1]).read_text()))) + "\n")
