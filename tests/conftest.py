"""Fixtures for the tests of all packages: the referees, which are Go programs with Kubernetes' own code, one process each per session."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.oracles import PROGRAMS, Oracle, OracleError, build_program
from tests.referees import UNRECORDED, Referee, mode, referee


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the referees before the first test, so that no test's time limit includes a build."""
    if session.config.option.collectonly:
        return
    mark, programs = ("live", UNRECORDED) if mode() == "recorded" else ("oracle", PROGRAMS)
    if not any(item.get_closest_marker(mark) for item in session.items):
        return
    try:
        for program in programs:
            build_program(program)
    except OracleError as error:
        raise pytest.UsageError(str(error)) from error


def referee_fixture(program, open_referee):
    """Return a fixture for a referee."""

    @pytest.fixture(scope="session")
    def fixture() -> Iterator[Referee | Oracle]:
        with open_referee(program) as referee:
            yield referee

    return fixture


# A comment says which question a referee answers.
cel_oracle = referee_fixture("cel", referee)  # how Kubernetes evaluates a CEL expression
quantity_oracle = referee_fixture("quantity", referee)  # how Kubernetes reads quantities and versions
allocate_oracle = referee_fixture("allocate", referee)  # how the in-tree allocator allocates claims on a node
yaml_oracle = referee_fixture("yaml", referee)  # what kubectl reads from a manifest
extended_oracle = referee_fixture("extended", referee)  # which claim the scheduler makes for extended resources
# on which nodes the scheduler's plugins let a pod run, without regard to the devices of claims
filter_oracle = referee_fixture("filter", referee)
prune_oracle = referee_fixture("prune", referee)  # which fields of a custom object the API server keeps
# whether the API server calls a webhook with a match condition
condition_oracle = referee_fixture("condition", lambda name: closing(Oracle(name)))
# what a program in a container can read about its devices
metadata_oracle = referee_fixture("metadata", lambda name: closing(Oracle(name)))
