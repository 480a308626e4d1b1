"""The file of an embedded store keeps every acknowledged write: after a restart, a full disk and a kill."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import Gone, NotFound, StoreError
from cluster.resources import CONFIG_MAPS, RESOURCE_CLAIMS
from tests.cluster.objects import claim, config_map, owned_by
from tests.limits import PATIENCE

ROOT = Path(__file__).parents[3]


async def stored_objects(cluster):
    """Return the config maps and claims of a store, by kind, namespace and name."""
    objects = {}
    for resource in (CONFIG_MAPS, RESOURCE_CLAIMS):
        for item in (await cluster.list(resource.raw)).items:
            objects[resource.id, item["metadata"]["namespace"], item["metadata"]["name"]] = item
    return objects


async def objects_after_reopening(path):
    cluster = Embedded.open(path)
    objects = await stored_objects(cluster)
    await cluster.close()
    return objects


async def write_history(path):
    """Write to a store; return its objects."""
    cluster = Embedded.open(path)
    owner = await cluster.create(CONFIG_MAPS, config_map("a", data={"text": "grüße\n\u2028"}), "default")
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": "1"}}), "default")
    await cluster.delete(CONFIG_MAPS, "a", "default")  # also deletes the claim that "a" owns, in the same write
    await cluster.create(CONFIG_MAPS, config_map("b"), "default")
    objects = await stored_objects(cluster)
    await cluster.close()
    return objects


async def test_a_reopened_store_is_unchanged(tmp_path):
    objects = await write_history(tmp_path / "store")
    assert await objects_after_reopening(tmp_path / "store") == objects
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


async def test_an_existing_store_file_becomes_readable_by_its_owner_only(tmp_path):
    """A store contains Secrets."""
    path = tmp_path / "store"
    path.touch(mode=0o644)
    path.chmod(0o644)
    await write_history(path)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_versions_continue_after_a_restart(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    first = await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    await cluster.delete(CONFIG_MAPS, "a", "default")
    last_version = int((await cluster.list(CONFIG_MAPS)).resource_version)
    await cluster.close()
    reopened_store = Embedded.open(tmp_path / "store")
    assert int((await reopened_store.list(CONFIG_MAPS)).resource_version) == last_version
    second = await reopened_store.create(CONFIG_MAPS, config_map("a"), "default")
    assert int(second.metadata.resource_version) == last_version + 1
    assert second.metadata.uid != first.metadata.uid
    await reopened_store.close()


async def test_after_a_restart_only_the_last_version_can_be_watched(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    early_version = (await cluster.list(CONFIG_MAPS)).resource_version
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    last_version = (await cluster.list(CONFIG_MAPS)).resource_version
    await cluster.close()
    reopened_store = Embedded.open(tmp_path / "store")
    with pytest.raises(Gone):
        async with reopened_store.watch(CONFIG_MAPS, resource_version=early_version):
            pass
    async with reopened_store.watch(CONFIG_MAPS, resource_version=last_version, timeout=0.01) as events:
        assert [event.resource_version async for event in events] == [last_version]
    await reopened_store.close()


async def test_an_open_store_cannot_be_opened_again(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    with pytest.raises(StoreError, match="store: database is locked"):
        Embedded.open(tmp_path / "store")
    await cluster.close()
    await Embedded.open(tmp_path / "store").close()


@pytest.mark.parametrize("text", [b"apiVersion: v1\nkind: Pod\n", b"\x00" * 100])
def test_a_file_of_another_format_is_refused_and_unchanged(tmp_path, text):
    path = tmp_path / "notes.yaml"
    path.write_bytes(text)
    with pytest.raises(StoreError, match=r"notes\.yaml: file is not a database"):
        Embedded.open(path)
    assert path.read_bytes() == text


def test_a_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(StoreError, match="other is a database of another program"):
        Embedded.open(path)


def test_a_path_in_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        Embedded.open(tmp_path / "nowhere" / "store")


FILL_DISK_SCRIPT = """
import asyncio, resource, sys
from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.errors import StoreError
from cluster.resources import CONFIG_MAPS

async def main():
    cluster = Embedded.open(sys.argv[1])
    meta = {"name": "a"}
    await cluster.create(CONFIG_MAPS, {"metadata": meta, "data": {"n": "0"}}, "default")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    for number in range(1, 1000):
        before = await cluster.list(CONFIG_MAPS.raw)
        try:
            await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": str(number)}}), "default")
        except StoreError as error:
            assert "nothing was changed" in str(error), error
            assert await cluster.list(CONFIG_MAPS.raw) == before
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"after": str(number)}}), "default")
            print(number)
            return
asyncio.run(main())
"""


async def test_a_write_to_a_full_disk_fails_and_loses_nothing(tmp_path):
    result = subprocess.run(  # noqa: ASYNC221  nothing else runs meanwhile
        [sys.executable, "-c", FILL_DISK_SCRIPT, tmp_path / "store"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    number = int(result.stdout)
    assert number > 1
    (config_map_read,) = (await objects_after_reopening(tmp_path / "store")).values()
    assert config_map_read["data"] == {"n": str(number - 1), "after": str(number)}


WRITE_OBJECTS_SCRIPT = """
import asyncio, os, sys
from cluster.embedded.embedded import Embedded
from cluster.resources import CONFIG_MAPS

async def main():
    cluster = Embedded.open(sys.argv[1])
    for number in range(100_000):
        name = f"c-{number:06}"
        await cluster.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"x": "y" * (number % 300)}}, "default")
        if number >= 5:
            await cluster.delete(CONFIG_MAPS, f"c-{number - 5:06}", "default")
        os.write(1, b"%d\\n" % number)
asyncio.run(main())
"""


@pytest.mark.parametrize("least_acknowledged", [1, 7, 40, 111, 300])
async def test_a_killed_process_loses_no_acknowledged_write(tmp_path, least_acknowledged):
    with subprocess.Popen(  # noqa: ASYNC220  nothing else runs meanwhile
        [sys.executable, "-c", WRITE_OBJECTS_SCRIPT, tmp_path / "store"], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        for line in writer.stdout:
            if int(line) >= least_acknowledged:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = max([least_acknowledged, *(int(line) for line in writer.stdout.read().split(b"\n")[:-1])])
    objects = await objects_after_reopening(tmp_path / "store")
    stored_numbers = sorted(int(name.removeprefix("c-")) for _, _, name in objects)
    # The file may also have the next number, which was not acknowledged: after its create, or after its create and delete.
    possible_ends = ((last, 1), (last + 1, 0), (last + 1, 1))
    possible_numbers = [range(max(0, newest - 5 + deletions), newest + 1) for newest, deletions in possible_ends]
    assert stored_numbers in [list(numbers) for numbers in possible_numbers]


async def test_a_write_that_the_file_refuses_changes_nothing(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), "default")
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    objects_before, version = await stored_objects(cluster), (await cluster.list(CONFIG_MAPS)).resource_version

    cluster._file._database.execute("PRAGMA query_only = 1")
    for write in (
        cluster.create(CONFIG_MAPS, config_map("new"), "default"),
        cluster.patch(CONFIG_MAPS, "owner", Merge({"data": {"a": "b"}}), "default"),
        cluster.delete(CONFIG_MAPS, "owner", "default"),
    ):
        with pytest.raises(StoreError, match="nothing was changed"):
            await write
    cluster._file._database.execute("PRAGMA query_only = 0")
    assert await stored_objects(cluster) == objects_before
    async with asyncio.timeout(PATIENCE), cluster.watch(CONFIG_MAPS, resource_version=version, timeout=0.01) as events:
        assert [type(event).__name__ async for event in events] == ["Bookmark"]
    await cluster.delete(CONFIG_MAPS, "owner", "default")
    with pytest.raises(NotFound):
        await cluster.get(RESOURCE_CLAIMS, "owned", "default")
    await cluster.close()
