"""The memory of processes and commands when tenants and a compromised node have stored the objects that need most memory."""

import sys

import pytest

from bench import hostile_store

# Divided among all kinds. Processes that kept these objects unchanged would need 370 to 780 MiB.
MIB_OF_HOSTILE_OBJECTS = 64
# Peaks in MiB. The controllers need more, because they read six kinds of workloads one object at a time and translate the objects.
CEILINGS_OF_PROCESSES = {"webhook": 260, "controllers": 450, "allocator": 300}

# Peaks in MiB. If objects were not reduced while they are read, the peaks would be 459, 821, 418 and 259 MiB.
# `explain` also reads the slices of a compromised node, and keeps the most.
CEILINGS_OF_COMMANDS = {"explain": 460, "doctor": 220, "survey": 220, "snapshot": 220}


@pytest.fixture(scope="module")
def store_folder():
    with hostile_store.stored(MIB_OF_HOSTILE_OBJECTS << 20) as directory:
        yield directory


@pytest.mark.long
@pytest.mark.parametrize("name", hostile_store.PROCESSES)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_a_process_stays_below_its_ceiling(store_folder, name):
    result = hostile_store.run(store_folder, name)
    assert result.peak < CEILINGS_OF_PROCESSES[name]


@pytest.mark.long
@pytest.mark.parametrize("name", CEILINGS_OF_COMMANDS)
@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the memory of a process that has ended")
def test_the_memory_of_a_command_stays_below_its_ceiling(store_folder, tmp_path, name):
    arguments = {"explain": ("claim/x1", "-n", "tenant-1"), "snapshot": ("--to", str(tmp_path / "snapshot.json"))}
    assert hostile_store.peak_of_command(store_folder, name, *arguments.get(name, ())) < CEILINGS_OF_COMMANDS[name]
