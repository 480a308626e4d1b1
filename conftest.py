"""Hooks for all tests: long forms, numbers for the Makefile, random cases, garbage collection. Nothing starts before a test needs it."""

import gc
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["e2e.fixtures"]

# `real` and `node` start a cluster, `live` builds Go programs, `long` takes up to hours. `pytest tests/dra` runs none of these.
COSTLY = {"real", "node", "live", "long"}

# The number of random cases of a test, also without Hypothesis (`tests.limits`). `make test-all` and `make long` draw `all`.
settings.register_profile("all", max_examples=200, deadline=None, suppress_health_check=HealthCheck)
settings.register_profile("unit", settings.get_profile("all"), max_examples=10)
settings.load_profile("unit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", type=Path, help="Write `PASSED FAILED` into this file.")
    parser.addoption("--no-skips", action="store_true", help="Count skipped tests as failed in this file.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse tests that no suite would run. Deselect tests that need Go, root or hours, unless `-m` names their mark."""
    for item in items:
        if item.nodeid.startswith("e2e/") and not any(map(item.get_closest_marker, ("real", "node", "long"))):
            raise pytest.UsageError(f"{item.nodeid} needs no cluster: move it to tests/e2e, or no suite runs it")
    named = COSTLY.intersection(re.findall(r"\w+", config.option.markexpr))
    left = [item for item in items if not _may_run(set(filter(item.get_closest_marker, COSTLY)), named)]
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


def _may_run(costly: set[str], named: set[str]) -> bool:
    """Return whether a test with these costly marks may run. A long form needs its own mark: `-m oracle` would be 50,000 cases."""
    return not costly or (bool(costly & named) and "long" not in costly - named)


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
