"""Fixtures that every room's tests share: the referees, one process each a session."""

from collections.abc import Iterator

import pytest

from tests.oracles import PROGRAMS, Oracle, OracleError, built


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the referees before the first test that asks them: a build is not a test, and has no time limit."""
    if session.config.option.collectonly or not any(item.get_closest_marker("oracle") for item in session.items):
        return
    try:
        for program in PROGRAMS:
            built(program)
    except OracleError as error:
        raise pytest.UsageError(str(error)) from error


def _running(name: str) -> Iterator[Oracle]:
    oracle = Oracle(name)
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def cel_oracle() -> Iterator[Oracle]:
    """What Kubernetes makes of a CEL expression."""
    yield from _running("cel")


@pytest.fixture(scope="session")
def condition_oracle() -> Iterator[Oracle]:
    """Whether a webhook is called by its match condition."""
    yield from _running("condition")


@pytest.fixture(scope="session")
def metadata_oracle() -> Iterator[Oracle]:
    """What a program in a container reads of its devices."""
    yield from _running("metadata")


@pytest.fixture(scope="session")
def quantity_oracle() -> Iterator[Oracle]:
    """How Kubernetes reads quantities and versions."""
    yield from _running("quantity")


@pytest.fixture(scope="session")
def allocate_oracle() -> Iterator[Oracle]:
    """What the in-tree allocator does for claims on a node."""
    yield from _running("allocate")


@pytest.fixture(scope="session")
def yaml_oracle() -> Iterator[Oracle]:
    """What kubectl reads from a manifest."""
    yield from _running("yaml")
