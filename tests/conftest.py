"""Fixtures that every room's tests share: the referees, one process each a session."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.oracles import PROGRAMS, Oracle, OracleError, built
from tests.referees import UNRECORDED, Referee, mode, referee


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the referees before the first test that asks them: a build is not a test, and has no time limit."""
    if session.config.option.collectonly:
        return
    mark, programs = ("live", UNRECORDED) if mode() == "recorded" else ("oracle", PROGRAMS)
    if not any(item.get_closest_marker(mark) for item in session.items):
        return
    try:
        for program in programs:
            built(program)
    except OracleError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def cel_oracle() -> Iterator[Referee]:
    """What Kubernetes makes of a CEL expression."""
    with referee("cel") as one:
        yield one


@pytest.fixture(scope="session")
def condition_oracle() -> Iterator[Oracle]:
    """Whether a webhook is called by its match condition."""
    with closing(Oracle("condition")) as one:
        yield one


@pytest.fixture(scope="session")
def metadata_oracle() -> Iterator[Oracle]:
    """What a program in a container reads of its devices."""
    with closing(Oracle("metadata")) as one:
        yield one


@pytest.fixture(scope="session")
def quantity_oracle() -> Iterator[Referee]:
    """How Kubernetes reads quantities and versions."""
    with referee("quantity") as one:
        yield one


@pytest.fixture(scope="session")
def allocate_oracle() -> Iterator[Referee]:
    """What the in-tree allocator does for claims on a node."""
    with referee("allocate") as one:
        yield one


@pytest.fixture(scope="session")
def yaml_oracle() -> Iterator[Referee]:
    """What kubectl reads from a manifest."""
    with referee("yaml") as one:
        yield one


@pytest.fixture(scope="session")
def extended_oracle() -> Iterator[Referee]:
    """Which claim the scheduler makes for extended resources."""
    with referee("extended") as one:
        yield one


@pytest.fixture(scope="session")
def filter_oracle() -> Iterator[Referee]:
    """On which nodes a pod may run, by the scheduler's own plugins; devices of claims aside."""
    with referee("filter") as one:
        yield one


@pytest.fixture(scope="session")
def prune_oracle() -> Iterator[Referee]:
    """What the API server keeps of a custom object."""
    with referee("prune") as one:
        yield one
