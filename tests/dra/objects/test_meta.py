"""The order of resourceVersions, and which versions are news: later ones, and different ones that cannot be compared."""

import pytest

from dra.objects import is_later, is_news


@pytest.mark.parametrize(
    ("version", "than", "later", "news"),
    [
        ("10", "9", True, True),
        ("9", "10", False, False),
        ("9", "9", False, False),
        ("184467440737095516160", "9", True, True),
        ("b", "a", False, True),
        ("a", "a", False, False),
        ("", "9", False, True),
        ("9", "", False, True),
        ("²", "1", False, True),
    ],
)
def test_resource_versions_are_ordered_only_if_they_are_numbers(version, than, later, news):
    assert (is_later(version, than), is_news(version, than)) == (later, news)
