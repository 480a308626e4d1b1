"""`every` runs all rows, and reports each row that fails."""

import inspect

import pytest

from tests.loops import every


def test_all_failing_rows_are_reported_with_their_values():
    @every(("number", "limit"), [(1, 2), (4, 3), (2, 2), (9, 5)])
    def loop(number, limit, tmp_path):
        assert number <= limit

    assert list(inspect.signature(loop).parameters) == ["tmp_path"]
    with pytest.raises(ExceptionGroup, match="2 of 4 rows failed") as caught:
        loop(tmp_path=None)
    assert [error.__notes__ for error in caught.value.exceptions] == [
        ["row: {'number': 4, 'limit': 3}"],
        ["row: {'number': 9, 'limit': 5}"],
    ]
