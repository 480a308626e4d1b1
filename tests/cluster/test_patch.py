"""Patches of plain documents follow the API server's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.embedded.apply import server_side_apply
from cluster.errors import ApiError, BadRequest, Invalid
from cluster.patch import Apply, apply_json_patch, apply_merge_patch, equal_json
from tests.loops import every

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~0", max_size=3)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(documents)
def test_a_document_is_never_changed_in_place(document):
    document_before = repr(document)
    if isinstance(document, dict):
        apply_merge_patch(document, {"a": None, "b": {"c": 1}})
    failing_operations = (
        {"op": "add", "path": "/a", "value": 1},
        {"op": "remove", "path": "/a"},
        {"op": "test", "path": "/zz", "value": 1},
    )
    with pytest.raises(ApiError):
        apply_json_patch(document, failing_operations)
    assert repr(document) == document_before


@every(
    ("operation", "error_type"),
    [
        ({"op": "jump", "path": "/a"}, BadRequest),
        ({"op": "add", "path": "/a"}, BadRequest),
        ({"op": "copy", "path": "/a"}, BadRequest),
        (None, BadRequest),
        ({"op": "add", "path": "a", "value": 1}, Invalid),
        ({"op": "add", "path": "/list/01", "value": 1}, Invalid),
        ({"op": "add", "path": "/list/3", "value": 1}, Invalid),
        ({"op": "remove", "path": "/list/-"}, Invalid),
        ({"op": "remove", "path": "/no/such"}, Invalid),
        ({"op": "add", "path": "/text/x", "value": 1}, Invalid),
        ({"op": "remove", "path": ""}, Invalid),
        ({"op": "move", "from": "/list", "path": "/list/0"}, Invalid),
        ({"op": "test", "path": "/one", "value": True}, Invalid),
    ],
)
def test_an_inapplicable_operation_raises_the_api_servers_error(operation, error_type):
    passing_operation = {"op": "test", "path": "/text", "value": "x"}
    with pytest.raises(error_type, match=r"^JSON Patch: ") as caught:
        apply_json_patch({"list": [1, 2], "text": "x", "one": 1}, (passing_operation, operation))
    assert type(caught.value) is error_type


@pytest.mark.parametrize(
    ("left", "right", "are_equal"),
    [(1, 1.0, True), (1, True, False), (0, False, False), ([], {}, False), ({"a": 1}, {"a": 1.0}, True)],
)
def test_json_values_are_compared_by_json_rules(left, right, are_equal):
    assert equal_json(left, right) is are_equal


def apply(document, body, manager="me"):
    return server_side_apply(document, Apply(body, manager), "")


def test_finalizers_of_all_managers_form_a_set():
    by_one = apply({}, {"metadata": {"finalizers": ["a", "b"]}})
    by_two = apply(by_one, {"metadata": {"finalizers": ["b", "c"]}}, "you")
    assert by_two["metadata"]["finalizers"] == ["a", "b", "c"]
    assert apply(by_two, {"metadata": {"finalizers": ["c"]}}, "you")["metadata"]["finalizers"] == ["a", "c"]


def test_opaque_parameters_are_owned_as_one_value():
    parameters = {"conditions": [{"type": "x"}], "a": {"b": None}}
    document = apply({}, {"spec": {"config": {"parameters": parameters}}})
    assert document["spec"]["config"]["parameters"] == parameters
    replaced = apply(document, {"spec": {"config": {"parameters": {"c": 1}}}})
    assert replaced["spec"]["config"]["parameters"] == {"c": 1}


def test_an_apply_without_a_field_manager_is_rejected():
    with pytest.raises(BadRequest, match="fieldManager"):
        apply({}, {"data": {}}, "")


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1), min_size=1), min_size=1, max_size=8))
def test_a_document_has_exactly_the_fields_last_applied(steps):
    document = {"data": {"theirs": 7}}
    for data in steps:
        document = apply(document, {"data": data})
        assert document["data"] == {"theirs": 7} | data


MALFORMED_MANAGED_FIELDS = [
    [{"manager": "x", "operation": "Nope"}],
    [{"manager": "me", "operation": "Apply", "subresource": "", "fieldsV1": {"f:data": {}}}],
    [{"manager": "me", "operation": "Apply", "subresource": "", "fieldsV1": [7]}],
    [None],
    "x",
    {},
]


@pytest.mark.parametrize("managed_fields", MALFORMED_MANAGED_FIELDS)
def test_malformed_managed_fields_own_nothing_and_block_no_apply(managed_fields):
    """A tenant may set malformed managedFields when it creates an object."""
    stored = {"metadata": {"name": "a", "managedFields": managed_fields}, "data": {"a": "0"}}
    applied = apply(stored, {"data": {"a": "1"}})
    assert applied["data"] == {"a": "1"}
