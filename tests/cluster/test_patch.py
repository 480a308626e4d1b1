"""Patches of plain documents follow the API server's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import ApiError, BadRequest, Invalid
from cluster.patch import apply_configuration, apply_json_patch, apply_merge_patch, equal_json
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


APPLIED = [
    ({"data": {"theirs": "0"}}, {"data": {"a": "1"}}, {"data": {"theirs": "0", "a": "1"}}),
    ({"list": [1, 2]}, {"list": [3]}, {"list": [3]}),
    (
        {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]},
        {"conditions": [{"type": "C"}, {"type": "A", "reason": "R"}]},
        {"conditions": [{"type": "A", "status": "True", "reason": "R"}, {"type": "B"}, {"type": "C"}]},
    ),
    ({"conditions": [{"no": "type"}]}, {"conditions": [{"type": "A"}]}, {"conditions": [{"type": "A"}]}),
    ({"parameters": {"a": 1}}, {"parameters": {"b": 2}}, {"parameters": {"b": 2}}),
]


@pytest.mark.parametrize(("old", "new", "applied"), APPLIED)
def test_an_apply_sets_fields_and_items_and_keeps_the_others(old, new, applied):
    assert apply_configuration(old, new) == applied
