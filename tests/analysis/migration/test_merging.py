"""Two edits of one value are merged, and edits that exclude each other are refused."""

import pytest

from analysis.migration.merging import Conflict, merged


@pytest.mark.parametrize(
    ("base", "first", "second", "both"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 1, "b": 2, "c": 3}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, {"a": {}}, {"a": {"c": 2}}),
        ({}, {"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({}, {"a": [1]}, {"a": [2]}, {"a": [1, 2]}),
        (["a", "c"], ["a", "c", "d"], ["a", "b", "c"], ["a", "b", "c", "d"]),
        (["a", "p", "z"], ["a", "z"], ["a", "p", "x", "z"], ["a", "x", "z"]),
        (["a", "p", "z"], ["a", "d", "z"], ["a", "p", "z", "zz"], ["a", "d", "z", "zz"]),
        (["a"], ["a", "z"], ["a", "b"], ["a", "b", "z"]),
        (["b", "a"], ["b", "a", "z"], ["b", "a", "c"], ["b", "a", "z", "c"]),
        (["a"], ["a", "b"], ["a", "b"], ["a", "b"]),
        ([{"n": 1}, {"n": 2}], [{"n": 1, "x": 1}, {"n": 2}], [{"n": 1, "y": 1}, {"n": 2}], [{"n": 1, "x": 1, "y": 1}, {"n": 2}]),
        ([{"n": 1}, {"n": 2}], [{"n": 2}], [{"n": 1}, {"n": 2, "x": 1}], [{"n": 2, "x": 1}]),
    ],
)  # fmt: skip
def test_both_edits_of_a_value_survive(base, first, second, both):
    assert merged(base, first, second) == both


@pytest.mark.parametrize(
    ("base", "first", "second"),
    [
        (1, 2, 3),
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": 1}, {}, {"a": 2}),
        ([1, 2, 3], [4], [1, 5, 3]),
        (["a"], ["b", "c"], ["d"]),
    ],
)
def test_edits_that_exclude_each_other_are_refused(base, first, second):
    with pytest.raises(Conflict):
        merged(base, first, second)
