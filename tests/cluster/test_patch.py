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


@given(documents, documents)
def test_a_merge_patch_follows_rfc_7396(target, patch):
    def reference(target, patch):
        if not isinstance(patch, dict):
            return patch
        target = dict(target) if isinstance(target, dict) else {}
        for name, value in patch.items():
            if value is None:
                target.pop(name, None)
            else:
                target[name] = reference(target.get(name), value)
        return target

    assert apply_merge_patch(target, patch) == reference(target, patch)


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
    return server_side_apply(document, Apply(body, manager), "", now="2026-01-01T00:00:00Z")


def test_each_manager_owns_its_named_items_of_a_list():
    by_one = apply({}, {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}})
    by_two = apply(by_one, {"spec": {"containers": [{"name": "b", "cpu": 2}, {"name": "c"}]}}, "you")
    assert by_two["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "1", "cpu": 2},
        {"name": "c"},
    ]
    after_removal = apply(by_two, {"spec": {"containers": [{"name": "a", "image": "2"}]}})
    assert after_removal["spec"]["containers"] == [{"name": "a", "image": "2"}, {"name": "b", "cpu": 2}, {"name": "c"}]


def test_finalizers_of_all_managers_form_a_set():
    by_one = apply({}, {"metadata": {"finalizers": ["a", "b"]}})
    by_two = apply(by_one, {"metadata": {"finalizers": ["b", "c"]}}, "you")
    assert by_two["metadata"]["finalizers"] == ["a", "b", "c"]
    assert apply(by_two, {"metadata": {"finalizers": ["a"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    assert apply(by_two, {"metadata": {"finalizers": ["c"]}}, "you")["metadata"]["finalizers"] == ["a", "b", "c"]


def test_a_list_of_plain_values_is_owned_as_one_value():
    document = apply({}, {"spec": {"args": ["a", "b"]}})
    assert apply(document, {"spec": {"args": ["b"]}}, "you")["spec"]["args"] == ["b"]


def test_opaque_parameters_are_owned_as_one_value():
    parameters = {"conditions": [{"type": "x"}], "a": {"b": None}}
    document = apply({}, {"spec": {"config": {"parameters": parameters}}})
    assert document["spec"]["config"]["parameters"] == parameters
    replaced = apply(document, {"spec": {"config": {"parameters": {"c": 1}}}})
    assert replaced["spec"]["config"]["parameters"] == {"c": 1}


def test_a_map_without_owned_fields_is_removed():
    document = apply({}, {"data": {"a": "1"}, "metadata": {"labels": {"x": "y"}}})
    assert "data" not in apply(document, {"metadata": {"labels": {"x": "y"}}})


def test_an_apply_without_a_field_manager_is_rejected():
    with pytest.raises(BadRequest, match="fieldManager"):
        apply({}, {"data": {}}, "")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["me", "you"]), st.dictionaries(st.sampled_from("abc"), st.integers(0, 1), max_size=3)
        ),
        max_size=8,
    )
)
def test_a_document_has_exactly_the_fields_last_applied(steps):
    document, data_by_manager = {}, {}
    for manager, data in steps:
        document = apply(document, {"data": data}, manager)
        data_by_manager[manager] = data
        for other_manager in data_by_manager.keys() - {manager}:
            # An apply takes a field away from another manager if it sets another value.
            other_data = data_by_manager[other_manager]
            data_by_manager[other_manager] = {
                name: value for name, value in other_data.items() if data.get(name, value) == value
            }
    expected = {name: value for data in data_by_manager.values() for name, value in data.items()}
    assert document.get("data", {}) == expected


MALFORMED_MANAGED_FIELDS = [
    [{"manager": "x", "operation": "Nope"}],
    [{"manager": "x", "operation": "Apply", "fieldsV1": {"f:data": {}}}],
    [{"manager": "me", "operation": "Apply", "time": 1, "fieldsV1": {}}],
    [{"manager": "x", "fieldsV1": [], "time": "2020-01-01T00:00:00Z"}],
    [None],
    "x",
    {},
]


@pytest.mark.parametrize("managed_fields", MALFORMED_MANAGED_FIELDS)
def test_malformed_managed_fields_own_nothing_and_block_no_apply(managed_fields):
    """A tenant may set malformed managedFields when it creates an object; the API server drops them."""
    stored = {"metadata": {"name": "a", "managedFields": managed_fields}, "data": {"a": "0"}}
    applied = apply(stored, {"data": {"a": "1"}})
    assert applied["data"] == {"a": "1"}
    assert [entry["manager"] for entry in applied["metadata"]["managedFields"]] == ["me"]
