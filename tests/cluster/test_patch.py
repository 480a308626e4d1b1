"""Patches of plain documents follow the API server's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.embedded.apply import server_side_apply
from cluster.errors import ApiError, BadRequest, Conflict, Invalid
from cluster.patch import Apply, apply_json_patch, apply_merge_patch, equal_json

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
    before = repr(document)
    if isinstance(document, dict):
        apply_merge_patch(document, {"a": None, "b": {"c": 1}})
    with_error = (
        {"op": "add", "path": "/a", "value": 1},
        {"op": "remove", "path": "/a"},
        {"op": "test", "path": "/zz", "value": 1},
    )
    with pytest.raises(ApiError):
        apply_json_patch(document, with_error)
    assert repr(document) == before


@pytest.mark.parametrize(
    ("operation", "kind"),
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
def test_an_inapplicable_operation_raises_the_api_servers_error(operation, kind):
    fine = {"op": "test", "path": "/text", "value": "x"}
    with pytest.raises(kind, match=r"^JSON Patch: ") as caught:
        apply_json_patch({"list": [1, 2], "text": "x", "one": 1}, (fine, operation))
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [(1, 1.0, True), (1, True, False), (0, False, False), ([], {}, False), ({"a": 1}, {"a": 1.0}, True)],
)
def test_json_values_are_compared_by_json_rules(left, right, equal):
    assert equal_json(left, right) is equal


def apply(old, body, manager="me", *, force=False):
    return server_side_apply(old, Apply(body, manager, force), "", now="2026-01-01T00:00:00Z")


def test_items_of_a_map_list_are_owned_individually():
    mine = apply({}, {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}})
    both = apply(mine, {"spec": {"containers": [{"name": "b", "cpu": 2}, {"name": "c"}]}}, "you")
    assert both["spec"]["containers"] == [
        {"name": "a", "image": "1"},
        {"name": "b", "image": "1", "cpu": 2},
        {"name": "c"},
    ]
    less = apply(both, {"spec": {"containers": [{"name": "a", "image": "2"}]}})
    assert less["spec"]["containers"] == [{"name": "a", "image": "2"}, {"name": "b", "cpu": 2}, {"name": "c"}]


def test_finalizers_are_a_set():
    mine = apply({}, {"metadata": {"finalizers": ["a", "b"]}})
    both = apply(mine, {"metadata": {"finalizers": ["b", "c"]}}, "you")
    assert both["metadata"]["finalizers"] == ["a", "b", "c"]
    assert apply(both, {"metadata": {"finalizers": ["a"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    assert apply(both, {"metadata": {"finalizers": ["c"]}}, "you")["metadata"]["finalizers"] == ["a", "b", "c"]


def test_any_other_list_is_one_value():
    mine = apply({}, {"spec": {"args": ["a", "b"]}})
    with pytest.raises(Conflict, match=r'conflict with "me": \.spec\.args'):
        apply(mine, {"spec": {"args": ["b"]}}, "you")
    assert apply(mine, {"spec": {"args": ["b"]}}, "you", force=True)["spec"]["args"] == ["b"]


def test_opaque_parameters_are_one_value():
    parameters = {"conditions": [{"type": "x"}], "a": {"b": None}}
    mine = apply({}, {"spec": {"config": {"parameters": parameters}}})
    assert mine["spec"]["config"]["parameters"] == parameters
    other = apply(mine, {"spec": {"config": {"parameters": {"c": 1}}}})
    assert other["spec"]["config"]["parameters"] == {"c": 1}


def test_an_emptied_map_is_removed():
    mine = apply({}, {"data": {"a": "1"}, "metadata": {"labels": {"x": "y"}}})
    assert "data" not in apply(mine, {"metadata": {"labels": {"x": "y"}}})


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
def test_fields_last_applied_are_present_and_unowned_fields_are_not(steps):
    document, wanted = {}, {}
    for manager, data in steps:
        document = apply(document, {"data": data}, manager, force=True)
        wanted[manager] = data
        for other in wanted.keys() - {manager}:
            # A forced apply takes the fields with other values away from the other manager.
            wanted[other] = {name: value for name, value in wanted[other].items() if data.get(name, value) == value}
    expected = {name: value for data in wanted.values() for name, value in data.items()}
    assert document.get("data", {}) == expected


ODD_MANAGERS = [
    [{"manager": "x", "operation": "Nope"}],
    [{"manager": "x", "operation": "Apply", "fieldsV1": {"f:data": {}}}],
    [{"manager": "me", "operation": "Apply", "time": 1, "fieldsV1": {}}],
    [{"manager": "x", "fieldsV1": [], "time": "2020-01-01T00:00:00Z"}],
    [None],
    "x",
    {},
]


@pytest.mark.parametrize("managers", ODD_MANAGERS)
def test_malformed_managed_fields_own_nothing_and_block_no_apply(managers):
    """A tenant may set malformed managedFields when it creates an object; the API server drops them."""
    stored = {"metadata": {"name": "a", "managedFields": managers}, "data": {"a": "0"}}
    became = apply(stored, {"data": {"a": "1"}})
    assert became["data"] == {"a": "1"}
    assert [entry["manager"] for entry in became["metadata"]["managedFields"]] == ["me"]
