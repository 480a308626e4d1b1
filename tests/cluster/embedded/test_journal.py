"""The file of an embedded store: an acknowledged write survives every kind of interruption."""

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
from tests.draws import ALL
from tests.limits import PATIENCE

ROOT = Path(__file__).parents[3]


async def content(cluster):
    """Return the config maps and claims of a store, by kind, namespace and name."""
    objects = {}
    for resource in (CONFIG_MAPS, RESOURCE_CLAIMS):
        for item in (await cluster.list(resource.raw)).items:
            objects[resource.id, item["metadata"]["namespace"], item["metadata"]["name"]] = item
    return objects


async def reopened(path):
    cluster = Embedded.open(path)
    objects = await content(cluster)
    await cluster.close()
    return objects


async def history(path):
    """Write a short history; return after each write the size of the file and the content of the store."""
    cluster = Embedded.open(path)
    moments = [(path.stat().st_size, await content(cluster))]

    async def moment():
        moments.append((path.stat().st_size, await content(cluster)))

    owner = await cluster.create(CONFIG_MAPS, config_map("a", data={"text": "grüße\n\u2028"}), "default")
    await moment()
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    await moment()
    await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": "1"}}), "default")
    await moment()
    await cluster.delete(CONFIG_MAPS, "a", "default")  # also deletes the owned claim, in the same write
    await moment()
    await cluster.create(CONFIG_MAPS, config_map("b"), "default")
    await moment()
    await cluster.close()
    return moments


async def test_a_reopened_store_is_unchanged(tmp_path):
    moments = await history(tmp_path / "store")
    assert await reopened(tmp_path / "store") == moments[-1][1]


async def test_an_existing_store_file_becomes_readable_by_its_owner_only(tmp_path):
    """A store contains Secrets."""
    path = tmp_path / "store"
    path.touch(mode=0o644)
    path.chmod(0o644)
    await history(path)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_truncated_journal_opens_at_an_earlier_state(tmp_path):
    moments = await history(tmp_path / "store")
    whole = (tmp_path / "store").read_bytes()
    cut = tmp_path / "cut"
    ends = {end + near for end, _ in moments for near in (-1, 0, 1)}
    for size in sorted({*range(0, len(whole) + 1, 1 if ALL else 4), *ends & {*range(len(whole) + 1)}}):
        await asyncio.sleep(0)  # yield to the loop for each size
        cut.write_bytes(whole[:size])
        cluster = Embedded.open(cut)
        expected = [held for end, held in moments if end <= size]
        assert await content(cluster) == (expected[-1] if expected else {}), f"cut at {size}"
        await cluster.create(CONFIG_MAPS, config_map("after"), "default")
        held = await content(cluster)
        await cluster.close()
        if size % 10 == 0:
            assert await reopened(cut) == held, f"written after a cut at {size}"


@pytest.mark.parametrize("turn", [lambda byte: byte ^ 0x15, lambda _: ord("\r")], ids=["flipped", "overwritten"])
async def test_a_flipped_byte_is_detected(tmp_path, turn):
    moments = await history(tmp_path / "store")
    whole = (tmp_path / "store").read_bytes()
    turned = tmp_path / "turned"
    last_line = whole.rindex(b"\n", 0, -1) + 1
    detected = 0
    positions = range(0, len(whole), 3 if ALL else 11)
    for position in positions:
        await asyncio.sleep(0)  # yield to the loop for each position
        turned.write_bytes(whole[:position] + bytes([turn(whole[position])]) + whole[position + 1 :])
        with contextlib.suppress(StoreError):
            held = await reopened(turned)
            # Only an incomplete last line counts as an unfinished write.
            assert position >= last_line
            assert held == moments[-2][1]
            continue
        detected += 1
    assert detected >= len(positions) - 1


async def test_a_damaged_line_is_named(tmp_path):
    await history(tmp_path / "store")
    lines = (tmp_path / "store").read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b"version", b"vision!")
    (tmp_path / "store").write_bytes(b"\n".join(lines))
    with pytest.raises(StoreError, match=r"store:4: the line is damaged"):
        Embedded.open(tmp_path / "store")


async def test_versions_continue_after_a_restart(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    made = await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    await cluster.delete(CONFIG_MAPS, "a", "default")
    last = int((await cluster.list(CONFIG_MAPS)).resource_version)
    await cluster.close()
    again = Embedded.open(tmp_path / "store")
    assert int((await again.list(CONFIG_MAPS)).resource_version) == last
    another = await again.create(CONFIG_MAPS, config_map("a"), "default")
    assert int(another.metadata.resource_version) == last + 1
    assert another.metadata.uid != made.metadata.uid
    await again.close()


async def test_a_watch_from_before_a_restart_is_gone(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    before = (await cluster.list(CONFIG_MAPS)).resource_version
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    now = (await cluster.list(CONFIG_MAPS)).resource_version
    await cluster.close()
    again = Embedded.open(tmp_path / "store")
    with pytest.raises(Gone):
        async with again.watch(CONFIG_MAPS, resource_version=before):
            pass
    async with again.watch(CONFIG_MAPS, resource_version=now, timeout=0.01) as events:
        assert [event.resource_version async for event in events] == [now]
    await again.close()


async def test_a_file_is_written_anew_when_it_has_grown(tmp_path):
    cluster = Embedded(journal=Journal(tmp_path / "store", least_compaction=2000))
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    for number in range(200):
        await cluster.patch(CONFIG_MAPS, "a", Merge({"data": {"n": str(number)}}), "default")
    held = await content(cluster)
    await cluster.close()
    assert (tmp_path / "store").stat().st_size < 20_000
    assert await reopened(tmp_path / "store") == held
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "store.lock"]


async def test_the_rest_of_an_interrupted_rewriting_is_removed(tmp_path):
    moments = await history(tmp_path / "store")
    (tmp_path / "store.new").write_bytes(b"drawbridge store 1\nhalf a li")
    assert await reopened(tmp_path / "store") == moments[-1][1]
    assert not (tmp_path / "store.new").exists()


async def test_a_store_belongs_to_one_process(tmp_path):
    cluster = Embedded.open(tmp_path / "store")
    with pytest.raises(StoreError, match="in use by another process"):
        Embedded.open(tmp_path / "store")
    await cluster.close()
    await Embedded.open(tmp_path / "store").close()


@pytest.mark.parametrize("text", [b"apiVersion: v1\nkind: Pod\n", b"\x00" * 100, b"drawbridge store 9\n"])
def test_a_file_other_than_a_journal_is_left_alone(tmp_path, text):
    path = tmp_path / "notes.yaml"
    path.write_bytes(text)
    with pytest.raises(StoreError, match="is not a store of drawbridge"):
        Embedded.open(path)
    assert path.read_bytes() == text


def test_an_unwritable_path_is_reported(tmp_path):
    with pytest.raises(StoreError, match="nowhere"):
        Embedded.open(tmp_path / "nowhere" / "store")


async def test_a_store_can_wait_for_the_disk(tmp_path):
    cluster = Embedded.open(tmp_path / "store", durable=True)
    await cluster.create(CONFIG_MAPS, config_map("a"), "default")
    held = await content(cluster)
    await cluster.close()
    assert await reopened(tmp_path / "store") == held


FULL = """
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


async def test_a_full_disk_refuses_the_write_and_loses_nothing(tmp_path):
    result = subprocess.run(  # noqa: ASYNC221  nothing else runs meanwhile
        [sys.executable, "-c", FULL, tmp_path / "store"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    number = int(result.stdout)
    assert number > 1
    (held,) = (await reopened(tmp_path / "store")).values()
    assert held["data"] == {"n": str(number - 1), "after": str(number)}


WRITER = """
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


@pytest.mark.parametrize("acknowledged", [1, 7, 40, 111, 300])
async def test_a_killed_process_loses_nothing_that_it_had_acknowledged(tmp_path, acknowledged):
    with subprocess.Popen(  # noqa: ASYNC220  nothing else runs meanwhile
        [sys.executable, "-c", WRITER, tmp_path / "store"], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        for line in writer.stdout:
            if int(line) >= acknowledged:
                break
        os.kill(writer.pid, signal.SIGKILL)
        last = max([acknowledged, *(int(line) for line in writer.stdout.read().split(b"\n")[:-1])])
    held = sorted(int(name.removeprefix("c-")) for _, _, name in await reopened(tmp_path / "store"))
    # The next number may be in the file without its acknowledgement: after its create, or after its create and delete.
    possible = [range(max(0, top - 5 + deleted), top + 1) for top, deleted in ((last, 1), (last + 1, 0), (last + 1, 1))]
    assert held in [list(numbers) for numbers in possible]


async def test_a_write_that_cannot_be_kept_did_not_happen(tmp_path, monkeypatch):
    cluster = Embedded.open(tmp_path / "store")
    owner = await cluster.create(CONFIG_MAPS, config_map("owner"), "default")
    await cluster.create(RESOURCE_CLAIMS, claim("owned", metadata=owned_by(owner)), "default")
    before, version = await content(cluster), (await cluster.list(CONFIG_MAPS)).resource_version

    def broken(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("cluster.embedded.journal.os.pwrite", broken)
        for write in (
            cluster.create(CONFIG_MAPS, config_map("new"), "default"),
            cluster.patch(CONFIG_MAPS, "owner", Merge({"data": {"a": "b"}}), "default"),
            cluster.delete(CONFIG_MAPS, "owner", "default"),
        ):
            with pytest.raises(StoreError, match="No space left"):
                await write
    assert await content(cluster) == before
    async with asyncio.timeout(PATIENCE), cluster.watch(CONFIG_MAPS, resource_version=version, timeout=0.01) as events:
        assert [type(event).__name__ async for event in events] == ["Bookmark"]
    await cluster.delete(CONFIG_MAPS, "owner", "default")
    with pytest.raises(NotFound):
        await cluster.get(RESOURCE_CLAIMS, "owned", "default")
    await cluster.close()
