"""The memory of each process that follows a cluster, and of commands that read one, where tenants and a stolen node have stored what grows most when it is read."""

import pytest

from bench import hostile_store, stub
from tests.draws import draws

# As much of each of the fifteen kinds as made the least of them take 370 MiB, and the largest 780, when all was kept as it came.
MIB = 64
# Controllers read six kinds of workloads one object at a time, and what one of these takes while it is translated comes on top.
CEILINGS = {"webhook": 260, "controllers": 450, "allocator": 300}

# Before objects were reduced while they are read, 459, 821, 418 and 259. `explain` reads what a stolen node publishes, too.
# They read with one reader: `explain`, which keeps the most, stands first and alone where few cases are drawn.
CEILINGS_OF_COMMANDS = {"explain": 460, "doctor": 220, "survey": 220, "snapshot": 220}


@pytest.fixture(scope="module")
def stored():
    with hostile_store.stored(MIB << 20) as directory:
        yield directory


@pytest.mark.time_limit(300, "processes read a cluster, on a machine that does other things too")
@pytest.mark.parametrize("name", hostile_store.PROCESSES)
@pytest.mark.linux("reads /proc")
def test_no_process_grows_by_what_tenants_store(stored, name):
    fared = hostile_store.run(stored, name)
    assert fared.peak < CEILINGS[name]


@pytest.mark.time_limit(300, "a command reads a cluster, on a machine that does other things too")
@pytest.mark.parametrize("name", list(CEILINGS_OF_COMMANDS)[: draws(len(CEILINGS_OF_COMMANDS))])
@pytest.mark.linux("asks the kernel for the memory of a process that has ended")
def test_no_command_grows_by_what_tenants_store(stored, tmp_path, name):
    more = {"explain": ("claim/x1", "-n", "tenant-1"), "snapshot": ("--to", str(tmp_path / "snapshot.json"))}
    assert hostile_store.peak_of_command(stored, name, *more.get(name, ())) < CEILINGS_OF_COMMANDS[name]


@pytest.mark.parametrize("plural", hostile_store.KINDS)
def test_each_object_is_of_the_size_that_is_said(plural, tmp_path):
    _, each, _ = hostile_store.KINDS[plural]
    written = hostile_store.write(tmp_path, plural, 4 * each)
    lines = (tmp_path / plural).read_bytes().splitlines()
    assert written == sum(len(line) + 1 for line in lines)
    for line in lines:
        assert 0.5 * each < len(line) < 2.2 * each
        assert line.startswith(stub.BEFORE)
