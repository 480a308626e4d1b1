"""The journal file of an embedded store keeps every acknowledged write: after truncation, damage, a full disk and a kill."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import Merge
from cluster.embedded.embedded import Embedded
from cluster.embedded.journal import Journal
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
    """Write to a store; return the size of the file and the objects of the store at the start and after each write."""
    cluster = Embedded.open(path)
    states = [(path.stat().st_size, await stored_objects(cluster))]

    async def record_state():
        states.append((path.stat().st_size, await stored_objects(cluster)))

    owner = await cluster.create(CONFIG_MAPS, config_map("a", data={"text": "grüße\n\u2028"}), "default")
    await record_state()
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    await record_state()
    await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": "1"}}), "default")
    await record_state()
    await cluster.delete(CONFIG_MAPS, "a", "default")  # also deletes the claim that "a" owns, in the same write
    await record_state()
    await cluster.create(CONFIG_MAPS, config_map("b"), "default")
    await record_state()
    await cluster.close()
    return states


async def test_a_reopened_store_is_unchanged(tmp_path):
    states = await write_history(tmp_path / "store")
    assert await objects_after_reopening(tmp_path / "store") == states[-1][1]


async def test_an_existing_store_file_becomes_readable_by_its_owner_only(tmp_path):
    """A store contains Secrets."""
    path = tmp_path / "store"
    path.touch(mode=0o644)
    path.chmod(0o644)
    await write_history(path)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_truncated_journal_keeps_its_complete_writes(tmp_path):
    states = await write_history(tmp_path / "store")
    complete_journal = (tmp_path / "store").read_bytes()
    truncated_file = tmp_path / "truncated"
    sizes_near_writes = {end + offset for end, _ in states for offset in (-1, 0, 1)}
    sizes = {*range(0, len(complete_journal) + 1, 4), *sizes_near_writes}
    for size in sorted(size for size in sizes if 0 <= size <= len(complete_journal)):
        await asyncio.sleep(0)  # yield to the loop for each size
        truncated_file.write_bytes(complete_journal[:size])
        cluster = Embedded.open(truncated_file)
        expected = [objects for end, objects in states if end <= size]
        assert await stored_objects(cluster) == (expected[-1] if expected else {}), f"wrong objects at {size} bytes"
        await cluster.create(CONFIG_MAPS, config_map("after"), "default")
        objects = await stored_objects(cluster)
        await cluster.close()
        if size % 10 == 0:
            assert await objects_after_reopening(truncated_file) == objects, f"a later write is lost at {size} bytes"


@pytest.mark.parametrize(
    "damage", [lambda byte: byte ^ 0x15, lambda _: ord("\r")], ids=["bits flipped", "replaced by a carriage return"]
)
async def test_a_changed_byte_is_detected(tmp_path, damage):
    states = await write_history(tmp_path / "store")
    journal = (tmp_path / "store").read_bytes()
    damaged_file = tmp_path / "damaged"
    last_line = journal.rindex(b"\n", 0, -1) + 1
    detected = 0
    positions = range(0, len(journal), 11)
    for position in positions:
        await asyncio.sleep(0)  # yield to the loop for each position
        damaged_file.write_bytes(journal[:position] + bytes([damage(journal[position])]) + journal[position + 1 :])
        with contextlib.suppress(StoreError):
            objects = await objects_after_reopening(damaged_file)
            # A damaged end makes the last line incomplete, so the line counts as an unfinished write.
            assert position >= last_line
            assert objects == states[-2][1]
            continue
        detected += 1
    assert detected >= len(positions) - 1


async def test_a_damaged_line_is_reported_with_its_number(tmp_path):
    await write_history(tmp_path / "store")
    lines = (tmp_path / "store").read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b"version", b"vision!")
    (tmp_path / "store").write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError, match=r"store:4: the line is damaged"):
        Embedded.open(tmp_path / "store")


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


async def test_a_store_file_that_has_grown_is_rewritten_smaller(tmp_path):
    cluster = Embedded(journal=Journal(tmp_path / "store", least_compaction=2000))
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    for number in range(200):
        await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": str(number)}}), "default")
    objects = await stored_objects(cluster)
    await cluster.close()
    assert (tmp_path / "store").stat().st_size < 20_000
    assert await objects_after_reopening(tmp_path / "store") == objects
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "store.lock"]


async def test_the_leftover_file_of_an_interrupted_rewrite_is_removed(tmp_path):
    states = await write_history(tmp_path / "store")
    (tmp_path / "store.new").write_bytes(b"drawbridge store 1\nhalf a li")
    assert await objects_after_reopening(tmp_path / "store") == states[-1][1]
    assert not (tmp_path / "store.new").exists()


async def test_an_open_store_cannot_be_opened_again(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    with pytest.raises(StoreError, match="in use by another process"):
        Embedded.open(tmp_path / "store")
    await cluster.close()
    await Embedded.open(tmp_path / "store").close()


@pytest.mark.parametrize("text", [b"apiVersion: v1\nkind: Pod\n", b"\x00" * 100, b"drawbridge store 9\n"])
def test_a_file_of_another_format_is_refused_and_unchanged(tmp_path, text):
    path = tmp_path / "notes.yaml"
    path.write_bytes(text)
    with pytest.raises(StoreError, match="is not a store of drawbridge"):
        Embedded.open(path)
    assert path.read_bytes() == text


def test_a_path_in_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        Embedded.open(tmp_path / "nowhere" / "store")


async def test_a_store_opened_as_durable_keeps_its_objects(tmp_path):
    cluster = Embedded.open(tmp_path / "store", durable=True)
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    objects = await stored_objects(cluster)
    await cluster.close()
    assert await objects_after_reopening(tmp_path / "store") == objects


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
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
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
from cluster.embedded.journal import Journal
from cluster.resources import CONFIG_MAPS

async def main():
    cluster = Embedded(journal=Journal(sys.argv[1], least_compaction=3000))
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


async def test_a_write_that_the_disk_refuses_changes_nothing(tmp_path, monkeypatch):
    cluster = Embedded.open(tmp_path / "store")
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), "default")
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    objects_before, version = await stored_objects(cluster), (await cluster.list(CONFIG_MAPS)).resource_version

    def fail_to_write(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("cluster.embedded.journal.os.pwrite", fail_to_write)
        for write in (
            cluster.create(CONFIG_MAPS, config_map("new"), "default"),
            cluster.patch(CONFIG_MAPS, "owner", Merge({"data": {"a": "b"}}), "default"),
            cluster.delete(CONFIG_MAPS, "owner", "default"),
        ):
            with pytest.raises(StoreError, match="No space left"):
                await write
    assert await stored_objects(cluster) == objects_before
    async with asyncio.timeout(PATIENCE), cluster.watch(CONFIG_MAPS, resource_version=version, timeout=0.01) as events:
        assert [type(event).__name__ async for event in events] == ["Bookmark"]
    await cluster.delete(CONFIG_MAPS, "owner", "default")
    with pytest.raises(NotFound):
        await cluster.get(RESOURCE_CLAIMS, "owned", "default")
    await cluster.close()
