"""What the API server keeps of a custom object is computed from the definition of its kind; `tests.oracle.prune` is the referee."""

import pytest

from tests.webhook.definitions import ANY, BEFORE_131, DROPS, KEEPS, definition, template
from webhook.state import custom_kinds

BOTH = ("example.com", "Thing")
POD = {
    "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}],
    "containers": [{"name": "c", "resources": {"claims": [{"name": "a", "request": "r"}]}}],
}


def thing(spec, version="v1"):
    return {"apiVersion": f"example.com/{version}", "kind": "Thing", "metadata": {"name": "t", "odd": 1}, "spec": spec}


def kept(crd, obj):
    (kind,) = custom_kinds([obj, crd])[BOTH]
    return kind.prune(obj)["spec"]


@pytest.mark.parametrize(
    ("schema", "spec", "expected"),
    [
        (KEEPS, POD, POD),
        (ANY, POD, POD),
        (DROPS, POD, {"containers": [{"name": "c", "resources": {}}]}),
        (BEFORE_131, POD, {**POD, "resourceClaims": [{"name": "a"}]}),
        ({"type": "object", "additionalProperties": template(KEEPS)}, {"Worker": {"spec": POD}}, {"Worker": {"spec": POD}}),
        ({"type": "object", "additionalProperties": True}, {"Worker": {"spec": POD}}, {"Worker": {}}),
        ({"type": "array", "items": {"type": "array", "items": DROPS}}, [[POD]], [[{"containers": [{"name": "c", "resources": {}}]}]]),
        ({**ANY, "properties": {"known": DROPS}}, {"known": POD, "other": POD}, {"known": {"containers": [{"name": "c", "resources": {}}]}, "other": POD}),
        ({**ANY, "items": {"type": "object", "properties": {"known": {"type": "object"}}}}, [{"known": POD, "other": 1}], [{"known": {}, "other": 1}]),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "Pod", "metadata": {"a": 1}, "spec": POD}, {"kind": "Pod", "metadata": {"a": 1}}),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_field_stays_where_the_schema_has_it_or_lets_it_through(schema, spec, expected):
    assert kept(definition(BOTH, schema), thing(spec)) == expected


def test_an_object_passes_the_schema_of_its_version_and_of_the_stored_one():
    two = definition(BOTH, KEEPS, DROPS)
    assert kept(two, thing(POD)) == POD
    assert "resourceClaims" not in kept(two, thing(POD, "v2"))
    assert "resourceClaims" not in kept(definition(BOTH, DROPS, KEEPS), thing(POD, "v2"))
    converted = definition(BOTH, DROPS, KEEPS, conversion={"strategy": "Webhook"})
    assert kept(converted, thing(POD, "v2")) == POD


def test_definitions_from_before_1_22_are_read():
    beta = definition(BOTH, DROPS)
    schema = beta["spec"]["versions"][0]["schema"]
    beta["apiVersion"] = "apiextensions.k8s.io/v1beta1"
    assert kept(beta, thing(POD)) == POD  # their default is to preserve
    beta["spec"] |= {"preserveUnknownFields": False, "version": "v1", "validation": schema}
    assert "resourceClaims" not in kept(beta, thing(POD))
    del beta["spec"]["versions"]
    assert "resourceClaims" not in kept(beta, thing(POD))
    assert kept(definition(BOTH, DROPS, preserveUnknownFields=True), thing(POD)) == POD


def deep(levels):
    schema = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def recursive():
    schema = {"type": "object", "properties": {}}
    schema["properties"]["again"] = schema
    return schema


def doubling():
    schema = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}}
    return schema


HOSTILE = {
    "doubling": definition(BOTH, doubling()),
    "deep": definition(BOTH, deep(400)),
    "recursive": definition(BOTH, recursive()),
    "text": definition(BOTH, "schema"),
    "no spec": {**definition(BOTH), "spec": []},
    "versions": {**definition(BOTH), "spec": {"group": BOTH[0], "names": {"kind": BOTH[1]}, "versions": {"v1": {}}}},
    "numbers": {**definition(BOTH), "spec": {"group": 1, "names": {"kind": ["Thing"]}, "versions": [1, None]}},
    "members": definition(BOTH, {"type": "object", "properties": {"a": None}}),
    "no schema": {**definition(BOTH), "spec": {**definition(BOTH)["spec"], "versions": [{"name": "v1", "served": True}]}},
}  # fmt: skip


@pytest.mark.parametrize("crd", HOSTILE.values(), ids=HOSTILE)
def test_a_definition_that_cannot_be_followed_drops_nothing(crd):
    assert all(not kind.served for kind in custom_kinds([crd, thing(POD)]).get(BOTH, ()))


def test_definitions_of_other_kinds_are_not_read():
    assert custom_kinds([definition(("example.com", f"Other{number}"), deep(100)) for number in range(50)]) == {}
