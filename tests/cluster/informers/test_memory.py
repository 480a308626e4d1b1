"""The bounds of caches grow with the memory limit of the process."""

import pytest

from cluster.informers import allotment

GIB = 1 << 30


@pytest.mark.parametrize(
    ("limit_file_text", "scale"),
    [
        (f"{4 * GIB}\n", 4.0),
        (f"{GIB // 2}\n", 1.0),  # the unscaled bounds are minimum amounts
        ("max\n", 1.0),
        ("9223372036854771712\n", 1.0),  # cgroup v1 writes this number if there is no limit
        ("", 1.0),
        (None, 1.0),
    ],
)
def test_bounds_grow_with_the_limit_and_never_shrink(limit_file_text, scale, monkeypatch, tmp_path):
    file = tmp_path / "memory.max"
    if limit_file_text is not None:
        file.write_text(limit_file_text)
    monkeypatch.setattr(allotment, "LIMITS", (file,))
    assert allotment.scale.__wrapped__() == scale  # the function without its cache
