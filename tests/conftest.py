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


def asked(program, ask):
    """Make the fixture of a referee."""

    @pytest.fixture(scope="session")
    def fixture() -> Iterator[Referee | Oracle]:
        with ask(program) as one:
            yield one

    return fixture


cel_oracle = asked("cel", referee)  # what Kubernetes makes of a CEL expression
quantity_oracle = asked("quantity", referee)  # how Kubernetes reads quantities and versions
allocate_oracle = asked("allocate", referee)  # what the in-tree allocator does for claims on a node
yaml_oracle = asked("yaml", referee)  # what kubectl reads from a manifest
extended_oracle = asked("extended", referee)  # which claim the scheduler makes for extended resources
filter_oracle = asked(
    "filter", referee
)  # on which nodes a pod may run, by the scheduler's plugins; devices of claims aside
prune_oracle = asked("prune", referee)  # what the API server keeps of a custom object
condition_oracle = asked(
    "condition", lambda name: closing(Oracle(name))
)  # whether a webhook's match condition calls it
metadata_oracle = asked(
    "metadata", lambda name: closing(Oracle(name))
)  # what a program in a container reads of its devices
