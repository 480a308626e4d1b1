"""What the tests of every room have: the fixtures of the real cluster, and limits. Nothing starts before a test asks for it."""

import sys

import pytest

pytest_plugins = ["e2e.fixtures", "tests.limits"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip with its reason what only Linux has; a long form is chosen only by its name: `-m oracle` would be 50,000 cases."""
    for item in items if sys.platform != "linux" else ():
        if mark := item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason=f"only Linux has it: {mark.args[0]}"))
    chosen = config.option.markexpr
    if not chosen or "long" in chosen:
        return
    left = [item for item in items if item.get_closest_marker("long")]
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)
