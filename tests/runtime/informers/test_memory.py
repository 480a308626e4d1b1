"""The bounds of caches grow with the memory limit of the process."""

import pytest

from runtime.informers import allotment as memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        (f"{4 * GIB}\n", 4.0),
        (f"{GIB // 2}\n", 1.0),  # the unscaled bounds are minimum amounts
        ("max\n", 1.0),
        ("9223372036854771712\n", 1.0),  # cgroup v1 without a limit
        ("", 1.0),
        (None, 1.0),
    ],
)
def test_bounds_grow_with_the_limit_and_never_shrink(text, scale, monkeypatch, tmp_path):
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(memory, "LIMITS", (file,))
    assert memory.scale.__wrapped__() == scale
