"""The memory of processes and commands when tenants and a stolen node have stored the objects that need most memory."""

import pytest

from bench import hostile_store, stub
from tests.draws import draws

# MiB of hostile objects, divided among all kinds. Processes that kept them unchanged would need 370 to 780 MiB.
MIB = 64
# Controllers read six kinds of workloads one object at a time, and translating an object takes further memory.
CEILINGS = {"webhook": 260, "controllers": 450, "allocator": 300}

# Without reducing objects during reading, the peaks are 459, 821, 418 and 259. `explain` also reads the slices of a stolen node.
# All commands use the same reader. `explain` keeps the most, so it is first, and the only one if few cases are drawn.
CEILINGS_OF_COMMANDS = {"explain": 460, "doctor": 220, "survey": 220, "snapshot": 220}


@pytest.fixture(scope="module")
def stored():
    with hostile_store.stored(MIB << 20) as directory:
        yield directory


@pytest.mark.time_limit(300, "processes read a cluster, on a machine that does other things too")
@pytest.mark.parametrize("name", hostile_store.PROCESSES)
@pytest.mark.linux("reads /proc")
def test_no_process_grows_by_what_tenants_store(stored, name):
    result = hostile_store.run(stored, name)
    assert result.peak < CEILINGS[name]


@pytest.mark.time_limit(300, "a command reads a cluster, on a machine that does other things too")
@pytest.mark.parametrize("name", list(CEILINGS_OF_COMMANDS)[: draws(len(CEILINGS_OF_COMMANDS))])
@pytest.mark.linux("asks the kernel for the memory of a process that has ended")
def test_no_command_grows_by_what_tenants_store(stored, tmp_path, name):
    more = {"explain": ("claim/x1", "-n", "tenant-1"), "snapshot": ("--to", str(tmp_path / "snapshot.json"))}
    assert hostile_store.peak_of_command(stored, name, *more.get(name, ())) < CEILINGS_OF_COMMANDS[name]


@pytest.mark.parametrize("plural", hostile_store.KINDS)
def test_each_object_has_the_declared_size(plural, tmp_path):
    _, each, _ = hostile_store.KINDS[plural]
    written = hostile_store.write(tmp_path, plural, 4 * each)
    lines = (tmp_path / plural).read_bytes().splitlines()
    assert written == sum(len(line) + 1 for line in lines)
    for line in lines:
        assert 0.5 * each < len(line) < 2.2 * each
        assert line.startswith(stub.BEFORE)
