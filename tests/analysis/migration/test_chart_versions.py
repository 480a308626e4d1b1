"""Which version of a chart a range of Helm, Flux or Argo CD takes."""

import pytest

from analysis.migration.chart_versions import newest

VERSIONS = ("0.2.3", "0.2.9", "0.3.0", "v1.2.3", "4.3.0", "4.3.2", "4.10.1", "5.0.0", "5.1.0-rc.1", "6.0.0+a")


@pytest.mark.parametrize(
    ("wanted", "version"),
    [
        ("4.3.0", "4.3.0"),
        ("1.2.3", "v1.2.3"),
        ("v4.3.0", "4.3.0"),
        ("6.0.0_a", "6.0.0+a"),
        ("5.1.0-rc.1", "5.1.0-rc.1"),
        ("*", "6.0.0+a"),
        ("4.x", "4.10.1"),
        ("4.3", "4.3.2"),
        ("v4.10", "4.10.1"),
        ("0.2.X", "0.2.9"),
        # Ranges with operators are not rendered.
        ("~4.3.1", ""),
        ("^0", ""),
        (">= 4.3.0, < 5", ""),
        ("4.3.0 - 4.5", ""),
        (">=5.1.0-0 <6", ""),
        ("7.x", ""),
        ("latest", ""),
    ],
)
def test_the_newest_release_of_a_range_is_taken(wanted, version):
    assert newest(wanted, VERSIONS) == version
