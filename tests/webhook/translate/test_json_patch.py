"""The webhook makes and applies JSON patches itself; the results equal those of the library jsonpatch."""

import copy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra.pointer import escape
from webhook.translate.json_patch import append, apply_own, remove_keys, set_keys

names = st.text("ab/~0", max_size=2)
values = st.none() | st.booleans() | st.integers(-3, 3) | st.lists(st.integers(0, 3), max_size=2)
maps = st.dictionaries(names, values, max_size=4)
objects = st.fixed_dictionaries({"parts": st.lists(st.fixed_dictionaries({}, optional={"map": maps, "list": st.lists(values)}), min_size=1, max_size=3)})  # fmt: skip


@given(objects, st.data())
def test_operations_match_the_jsonpatch_library_and_change_nothing_in_place(obj, data):
    original = copy.deepcopy(obj)
    operations = []
    for number, part in enumerate(obj["parts"]):
        path = f"/parts/{number}"
        operations.append({"op": "test", "path": path, "value": part})
        removed, added = data.draw(st.lists(names, max_size=3, unique=True)), data.draw(st.lists(values, max_size=3))
        operations += remove_keys(f"{path}/map", part.get("map", {}), removed)
        operations += append(f"{path}/list", part.get("list"), added)
        operations += set_keys(f"{path}/{escape('a/b')}", None, data.draw(maps))
    assert apply_own(obj, operations) == jsonpatch.apply_patch(obj, operations)
    assert obj == original


@pytest.mark.parametrize(
    ("keys", "operations"),
    [
        ("abc", [{"op": "remove", "path": "/map"}]),
        ("abx", [{"op": "replace", "path": "/map", "value": {"c": 3}}]),
        ("b", [{"op": "remove", "path": "/map/b"}]),
        ("x", []),
    ],
)
def test_keys_are_removed_with_few_operations(keys, operations):
    assert remove_keys("/map", {"a": 1, "b": 2, "c": 3}, keys) == operations


def test_an_item_is_inserted_without_copying_the_rest():
    obj = {"list": [1, 3], "rest": {"a": 1}}
    changed = apply_own(obj, [{"op": "add", "path": "/list/1", "value": 2}])
    assert changed == {"list": [1, 2, 3], "rest": {"a": 1}}
    assert changed["rest"] is obj["rest"]
