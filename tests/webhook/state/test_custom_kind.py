"""drawbridge computes from a CRD which fields the API server keeps in a custom object; `tests/oracle/prune` runs the API server's code."""

import copy
import random

import pytest

from tests.webhook.definitions import ANY, BEFORE_131, DROPS_CLAIMS, KEEPS_CLAIMS, definition, template
from webhook.state import custom_kinds

GROUP_KIND = ("example.com", "Thing")
TYPE = {"apiVersion": "example.com/v1", "kind": "Thing"}
POD_SPEC = {
    "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}],
    "containers": [{"name": "c", "resources": {"claims": [{"name": "a", "request": "r"}]}}],
}


def custom_object(spec, version="v1"):
    return {"apiVersion": f"example.com/{version}", "kind": "Thing", "metadata": {"name": "t", "odd": 1}, "spec": spec}


def pruned_spec(crd, obj):
    (kind,) = custom_kinds([obj, crd])[GROUP_KIND]
    return kind.prune(obj)["spec"]


@pytest.mark.parametrize(
    ("schema", "spec", "expected"),
    [
        (KEEPS_CLAIMS, POD_SPEC, POD_SPEC),
        (ANY, POD_SPEC, POD_SPEC),
        (DROPS_CLAIMS, POD_SPEC, {"containers": [{"name": "c", "resources": {}}]}),
        (BEFORE_131, POD_SPEC, {**POD_SPEC, "resourceClaims": [{"name": "a"}]}),
        ({"type": "object", "additionalProperties": template(KEEPS_CLAIMS)}, {"Worker": {"spec": POD_SPEC}}, {"Worker": {"spec": POD_SPEC}}),
        ({"type": "object", "additionalProperties": True}, {"Worker": {"spec": POD_SPEC}}, {"Worker": {}}),
        ({"type": "array", "items": {"type": "array", "items": DROPS_CLAIMS}}, [[POD_SPEC]], [[{"containers": [{"name": "c", "resources": {}}]}]]),
        ({**ANY, "properties": {"known": DROPS_CLAIMS}}, {"known": POD_SPEC, "other": POD_SPEC}, {"known": {"containers": [{"name": "c", "resources": {}}]}, "other": POD_SPEC}),
        ({**ANY, "items": {"type": "object", "properties": {"known": {"type": "object"}}}}, [{"known": POD_SPEC, "other": 1}], [{"known": {}, "other": 1}]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "Pod", "metadata": {"a": 1}, "spec": POD_SPEC}, {"kind": "Pod", "metadata": {"a": 1}}),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_field_stays_where_the_schema_permits_it(schema, spec, expected):
    assert pruned_spec(definition(GROUP_KIND, schema), custom_object(spec)) == expected


def test_served_and_stored_schema_prune_an_object():
    two_versions = definition(GROUP_KIND, KEEPS_CLAIMS, DROPS_CLAIMS)
    assert pruned_spec(two_versions, custom_object(POD_SPEC)) == POD_SPEC
    assert "resourceClaims" not in pruned_spec(two_versions, custom_object(POD_SPEC, "v2"))
    assert "resourceClaims" not in pruned_spec(
        definition(GROUP_KIND, DROPS_CLAIMS, KEEPS_CLAIMS), custom_object(POD_SPEC, "v2")
    )
    converted = definition(GROUP_KIND, DROPS_CLAIMS, KEEPS_CLAIMS, conversion={"strategy": "Webhook"})
    assert pruned_spec(converted, custom_object(POD_SPEC, "v2")) == POD_SPEC


def test_a_definition_that_preserves_unknown_fields_keeps_every_field():
    crd = definition(GROUP_KIND, DROPS_CLAIMS, preserveUnknownFields=True)
    assert pruned_spec(crd, custom_object(POD_SPEC)) == POD_SPEC


def deep_schema(levels):
    schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def recursive_schema():
    schema = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema
    return schema


def doubling_schema():
    schema = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


HOSTILE = {
    "doubling": definition(GROUP_KIND, doubling_schema()),
    "deep": definition(GROUP_KIND, deep_schema(400)),
    "recursive": definition(GROUP_KIND, recursive_schema()),
    "text": definition(GROUP_KIND, "schema"),
    "no spec": {**definition(GROUP_KIND), "spec": []},
    "versions": {**definition(GROUP_KIND), "spec": {"group": GROUP_KIND[0], "names": {"kind": GROUP_KIND[1]}, "versions": {"v1": {}}}},
    "numbers": {**definition(GROUP_KIND), "spec": {"group": 1, "names": {"kind": ["Thing"]}, "versions": [1, None]}},
    "members": definition(GROUP_KIND, {"type": "object", "properties": {"a": None}}),
    "no schema": {**definition(GROUP_KIND), "spec": {**definition(GROUP_KIND)["spec"], "versions": [{"name": "v1", "served": True}]}},
}  # fmt: skip


@pytest.mark.parametrize("crd", HOSTILE.values(), ids=HOSTILE)
def test_a_definition_that_cannot_be_read_drops_no_field(crd):
    assert all(not kind.served for kind in custom_kinds([crd, custom_object(POD_SPEC)]).get(GROUP_KIND, ()))


def test_definitions_of_other_kinds_are_not_read():
    assert custom_kinds([definition(("example.com", f"Other{number}"), deep_schema(100)) for number in range(50)]) == {}


NAMES = ("a", "b", "spec", "kind", "apiVersion", "metadata")


def drawn_schema(rng: random.Random, depth: int) -> dict:
    """Draw a structural schema, as the API server accepts it: no schema allows both an object and a list."""
    kind = rng.choice(("object", "object", "array", "string")) if depth else "string"
    schema: dict = {"type": kind}
    if kind == "array":
        schema["items"] = drawn_schema(rng, depth - 1)
    if kind == "object":
        match rng.randrange(5):
            case 0:
                schema["additionalProperties"] = rng.choice((True, drawn_schema(rng, depth - 1)))
            case 1 | 2 | 3:
                property_names = rng.sample(NAMES, rng.randrange(len(NAMES)))
                schema["properties"] = {name: drawn_schema(rng, depth - 1) for name in property_names}
        schema["x-kubernetes-embedded-resource"] = rng.random() < 0.2
    schema["x-kubernetes-preserve-unknown-fields"] = rng.random() < 0.25
    return {name: value for name, value in schema.items() if value is not False}


def drawn_value(rng: random.Random, depth: int, schema: dict | None = None):
    """Draw a value that mostly matches a schema, because the API server drops most other values completely."""
    kind = rng.choice(("object", "array", "string")) if depth else "string"
    if schema and rng.random() < 0.85:
        kind = schema["type"]
    if kind == "string" or depth <= 0:
        return rng.choice(("text", 1, None, True))
    if kind == "array":
        return [drawn_value(rng, depth - 1, (schema or {}).get("items")) for _ in range(rng.randrange(3))]
    properties = (schema or {}).get("properties", {})
    return {
        name: drawn_value(rng, depth - 1, properties.get(name)) for name in rng.sample(NAMES, rng.randrange(len(NAMES)))
    }


@pytest.mark.oracle
def test_pruning_keeps_the_same_fields_as_the_api_server(prune_oracle):
    questions = []
    for seed in range(prune_oracle.cases(20_000, recorded=2_000)):
        rng = random.Random(seed)
        schema = {**drawn_schema(rng, 5), "type": "object"}
        schema.pop("items", None)
        spec = drawn_value(rng, 6, schema)
        questions.append({"schema": schema, "object": {**(spec if isinstance(spec, dict) else {}), **TYPE}})
    changed = 0
    for question, answer in zip(questions, prune_oracle.ask_all(copy.deepcopy(questions)), strict=True):
        crd = definition(GROUP_KIND, {})
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = question["schema"]
        (kind,) = custom_kinds([question["object"], crd])[GROUP_KIND]
        assert kind.prune(question["object"]) == answer["kept"], question
        changed += answer["kept"] != question["object"]
    assert changed > len(questions) / 4
