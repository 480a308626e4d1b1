"""Hooks for all tests: long forms, numbers for the Makefile, random cases, garbage collection. Nothing starts before a test needs it."""

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["e2e.fixtures"]

# The number of random cases of a test, also without Hypothesis (`tests.limits`). `make test-all` and `make long` draw `all`.
settings.register_profile("all", max_examples=200, deadline=None, suppress_health_check=HealthCheck)
settings.register_profile("unit", settings.get_profile("all"), max_examples=10)
settings.load_profile("unit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", type=Path, help="Write `PASSED FAILED` into this file.")
    parser.addoption("--no-skips", action="store_true", help="Count skipped tests as failed in this file.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests of Linux elsewhere. Refuse tests that no suite would run. Deselect long forms unless they are named: `-m oracle` would be 50,000 cases."""
    for item in items if sys.platform != "linux" else ():
        if mark := item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason=f"only Linux has it: {mark.args[0]}"))
    for item in items:
        if item.nodeid.startswith("e2e/") and not any(map(item.get_closest_marker, ("real", "node", "long"))):
            raise pytest.UsageError(f"{item.nodeid} needs no cluster: move it to tests/e2e, or no suite runs it")
    chosen = config.option.markexpr
    if not chosen or "long" in chosen:
        return
    left = [item for item in items if item.get_closest_marker("long")]
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze all imported objects, and collect garbage rarely: collections took an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Write the numbers of passed and failed tests. A run that fails without a failed test counts as one failure."""
    passed, *failed = (
        len(terminalreporter.getreports(outcome))
        for outcome in ("passed", "failed", "error", *["skipped"] * config.option.no_skips)
    )
    if config.option.results:
        config.option.results.write_text(f"{passed} {sum(failed) or int(exitstatus != 0)}\n")
