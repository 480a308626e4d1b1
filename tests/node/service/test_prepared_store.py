"""The prepared store after a kill at any step, on a full disk and beside a second process: no device is prepared twice or held forever."""

import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from node.checkpoint import BrokenCheckpoint, Write
from node.guard import Guard
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore
from tests.node.machines import DRIVER, NODE, claim, gpu, machine, reference, result

MACHINE = machine(gpus=[gpu(0), gpu(1)])


class Killed(BaseException):
    """The process is killed; this is not an error to handle."""


class Mortal(Disk):
    """A disk of a process that is killed before its nth step, or in the middle of a write."""

    def __init__(self, steps, *, half=False):
        self.steps, self.half = steps, half

    def take(self, step):
        if self.steps == 0:
            if self.half and isinstance(step, Write):
                Path(step.path).write_bytes(step.data[: len(step.data) // 2])
            raise Killed
        self.steps -= 1
        super().take(step)


class Full(Disk):
    """A disk without room for files of a kind."""

    def __init__(self, kind):
        self.kind = kind

    def take(self, step):
        if isinstance(step, Write) and self.kind in step.path:
            raise OSError(28, "No space left on device")
        super().take(step)


def store(folder, disk=None, made=MACHINE):
    (folder / "cdi").mkdir(exist_ok=True)
    return PreparedStore(made, Guard(made, NODE), disk or Disk(), str(folder), str(folder / "cdi"))


def prepare(prepared_store, *claims):
    references = [reference(item.metadata.name) for item in claims]
    return prepared_store.prepare(references, {item.metadata.uid: item for item in claims})


def files(folder):
    return sorted(path.name for path in (folder / "cdi").iterdir())


def published_files(folder):
    """Return the names of the files that containers can read."""
    return sorted(path.name for path in (folder / "metadata").iterdir())


A, B = claim("a", result("gpu-0")), claim("b", result("gpu-0"))
FILE = f"drawbridge_{DRIVER}_uid-a.json"


def test_preparing_writes_checkpoint_and_file_and_is_repeatable(tmp_path):
    first = prepare(store(tmp_path), A)
    assert first["uid-a"].error == ""
    assert [device.cdi for device in first["uid-a"].devices] == [(f"{DRIVER}/claim=uid-a-0",)]
    assert (set(store(tmp_path).claims()), files(tmp_path)) == ({"uid-a"}, [FILE])
    assert prepare(store(tmp_path), A) == first


def test_an_unprepared_claim_leaves_nothing_and_may_be_unprepared_again(tmp_path):
    prepare(store(tmp_path), A)
    for _ in range(2):
        assert store(tmp_path).unprepare([reference("a")])["uid-a"].error == ""
        assert (dict(store(tmp_path).claims()), files(tmp_path), published_files(tmp_path)) == ({}, [], [])


def test_a_refused_claim_does_not_block_the_others(tmp_path):
    answers = prepare(store(tmp_path), A, B, claim("c", result("gpu-1")))
    assert [bool(answers[uid].error) for uid in ("uid-a", "uid-b", "uid-c")] == [False, True, False]
    assert answers["uid-b"].error == "ResourceClaim ns/b: Taken: gpu-0 is prepared for ns/a"


@pytest.mark.parametrize("half", [False, True], ids=["between steps", "in a write"])
def test_a_kill_at_any_step_of_preparing_is_repaired(tmp_path, half):
    (tmp_path / "whole").mkdir()
    whole = prepare(store(tmp_path / "whole"), A)
    kills = 0
    for steps in range(40):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        try:
            prepare(store(folder, Mortal(steps, half=half)), A)
            break
        except Killed:
            kills += 1
        # Claim b gets the device only if claim a does not hold it, after a kill at any step.
        answer = prepare(store(folder), B)["uid-b"]
        held = store(folder).claims()
        assert len(held) == 1
        assert ("uid-a" in held) == bool(answer.error)
        if "uid-b" in held:
            store(folder).unprepare([reference("b")])
        store(folder).repair()
        assert {name for name in files(folder) if not name.endswith(".json")} == set()
        assert prepare(store(folder), A) == whole
        assert files(folder) == [FILE]
        assert published_files(folder) == ["uid-a_0.json"]
    assert kills == 8  # a checkpoint in four steps, and two files in two each


def test_a_kill_at_any_step_of_unpreparing_is_repaired(tmp_path):
    kills = 0
    for steps in range(40):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        prepare(store(folder), A)
        try:
            store(folder, Mortal(steps)).unprepare([reference("a")])
            break
        except Killed:
            kills += 1
        held = set(store(folder).claims())
        assert bool(prepare(store(folder), B)["uid-b"].error) == ("uid-a" in held)
        store(folder).repair()
        assert files(folder) == [f"drawbridge_{DRIVER}_{uid}.json" for uid in sorted(store(folder).claims())]
        assert published_files(folder) == [f"{uid}_0.json" for uid in sorted(store(folder).claims())]
        store(folder).unprepare([reference("a"), reference("b")])
        assert (dict(store(folder).claims()), files(folder)) == ({}, [])
    assert kills == 6


@pytest.mark.parametrize("kind", ["checkpoint", "cdi", "metadata"])
def test_a_full_disk_is_an_error_without_loss(tmp_path, kind):
    prepare(store(tmp_path), A)
    before = (tmp_path / "checkpoint").read_bytes()
    answers = prepare(store(tmp_path, Full(kind)), A, claim("c", result("gpu-1")))
    assert answers["uid-a"].error == ""
    assert "No space left on device" in answers["uid-c"].error
    if kind == "checkpoint":
        assert (tmp_path / "checkpoint").read_bytes() == before
    assert prepare(store(tmp_path), claim("c", result("gpu-1")))["uid-c"].error == ""


def test_a_write_to_a_full_disk_leaves_no_partial_file(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert "No space left" in prepare(store(tmp_path), A)["uid-a"].error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cdi", "lock", "metadata"]


def test_a_driver_starts_on_a_full_disk_and_repairs_later(tmp_path):
    first = prepare(store(tmp_path), A)
    (tmp_path / "cdi" / FILE).unlink()
    store(tmp_path, Full("cdi")).repair()
    assert files(tmp_path) == []
    assert prepare(store(tmp_path), A) == first
    assert files(tmp_path) == [FILE]


def test_a_reboot_that_empties_the_folder_of_files_is_repaired(tmp_path):
    prepare(store(tmp_path), A)
    written = (tmp_path / "cdi" / FILE).read_bytes()
    (tmp_path / "cdi" / FILE).unlink()
    store(tmp_path).repair()
    assert (tmp_path / "cdi" / FILE).read_bytes() == written


@pytest.mark.parametrize("lost", ["cdi", "metadata"])
def test_files_deleted_while_the_driver_runs_are_restored(tmp_path, lost):
    prepare(store(tmp_path), A, claim("c", result("gpu-1")))
    running = store(tmp_path)
    folder = tmp_path / lost
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in sorted(written)[:1]:
        (folder / name).unlink()
    assert running.restore()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written
    shutil.rmtree(folder)
    assert running.restore()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written


def test_a_different_file_of_another_version_is_not_replaced(tmp_path):
    prepare(store(tmp_path), A)
    (tmp_path / "cdi" / FILE).write_bytes(b"{}")
    store(tmp_path).restore()
    assert (tmp_path / "cdi" / FILE).read_bytes() == b"{}"


def test_a_file_that_cannot_be_restored_does_not_block_others(tmp_path):
    prepare(store(tmp_path), A, claim("c", result("gpu-1")))
    shutil.rmtree(tmp_path / "metadata")
    (tmp_path / "cdi" / FILE).unlink()
    assert store(tmp_path, Full("cdi")).restore() is False
    assert (len(files(tmp_path)), len(published_files(tmp_path))) == (1, 2)
    assert store(tmp_path).restore() is True
    assert len(files(tmp_path)) == 2


def test_preparing_a_claim_again_restores_its_modified_cdi_file(tmp_path):
    first = prepare(store(tmp_path), A)
    written = (tmp_path / "cdi" / FILE).read_bytes()
    (tmp_path / "cdi" / FILE).write_bytes(b"{}")
    assert prepare(store(tmp_path), A) == first
    assert (tmp_path / "cdi" / FILE).read_bytes() == written


def test_only_files_without_a_prepared_claim_are_removed(tmp_path):
    prepare(store(tmp_path), A)
    for name in (
        f"drawbridge_{DRIVER}_gone.json",
        f"drawbridge_{DRIVER}_x.json.new",
        "nvidia.json",
        "drawbridge_other.example.com_x.json",
    ):
        (tmp_path / "cdi" / name).write_text("{}")
    store(tmp_path).repair()
    assert files(tmp_path) == [FILE, "drawbridge_other.example.com_x.json", "nvidia.json"]


def test_a_metadata_file_is_world_readable_and_restored_when_lost(tmp_path):
    prepare(store(tmp_path), A)
    file = tmp_path / "metadata" / "uid-a_0.json"
    content = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o600
    (tmp_path / "metadata" / "uid-gone_0.json").write_text("{}")
    (tmp_path / "metadata" / "uid-a_0.json.new").write_text("{")
    file.unlink()
    store(tmp_path).repair()
    assert (published_files(tmp_path), file.read_bytes()) == ([file.name], content)


def test_a_truncated_checkpoint_is_refused_and_not_overwritten(tmp_path):
    prepare(store(tmp_path), A)
    data = (tmp_path / "checkpoint").read_bytes()
    (tmp_path / "checkpoint").write_bytes(data[:-1])
    for attempt in (
        lambda opened: opened.repair(),
        lambda opened: prepare(opened, B),
        lambda opened: opened.unprepare([reference("a")]),
    ):
        with pytest.raises(BrokenCheckpoint):
            attempt(store(tmp_path))
    assert (tmp_path / "checkpoint").read_bytes() == data[:-1]


def test_without_an_api_answer_only_prepared_claims_are_answered(tmp_path):
    first = prepare(store(tmp_path), A)
    references = [reference("a"), reference("b")]
    answers = store(tmp_path).prepare(references, {"uid-a": "no answer", "uid-b": "no answer"})
    assert answers["uid-a"] == first["uid-a"]
    assert "no answer" in answers["uid-b"].error
    gone = store(tmp_path).prepare(references[:1], {"uid-a": None})
    assert "the claim is gone" in gone["uid-a"].error


def test_only_one_of_two_concurrent_drivers_prepares_a_device(tmp_path):
    """Eight threads with a store each, on the same files, act like the drivers of a rolling update."""
    claims = [claim(f"c{number}", result("gpu-0")) for number in range(8)]
    answers = {}

    def ask(wanted):
        answers.update(prepare(store(tmp_path), wanted))

    threads = [threading.Thread(target=ask, args=(wanted,)) for wanted in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not answer.error for answer in answers.values()) == 1
    assert len(store(tmp_path).claims()) == 1


def test_the_lock_is_held_while_preparing_and_unpreparing(tmp_path):
    """A second descriptor of the lock file behaves like another process."""
    steps = []

    class Watched(Disk):
        def take(self, step):
            with (tmp_path / "lock").open() as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    steps.append(type(step).__name__)
            super().take(step)

    prepare(store(tmp_path, Watched()), A)
    store(tmp_path, Watched()).unprepare([reference("a")])
    checkpoint = ["Write", "SyncFile", "Rename", "SyncFolder"]
    assert steps == [*checkpoint, *["Write", "Rename"] * 2, "Remove", "Remove", *checkpoint]


def test_two_drivers_see_each_others_changes_to_the_checkpoint(tmp_path):
    old, new = store(tmp_path), store(tmp_path)
    prepare(old, A)
    assert "Taken" in prepare(new, B)["uid-b"].error
    new.unprepare([reference("a")])
    assert prepare(old, B)["uid-b"].error == ""
