"""The prepared store after a kill at any step, on a full disk and beside a second process: no device is prepared twice or held forever."""

import fcntl
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from node.checkpoint import BrokenCheckpoint, Checkpoint, WriteFile, encode
from node.guard import Guard
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore
from tests.node.machines import DRIVER, LAYOUT, NODE, claim, gpu, machine, reference, result

MACHINE = machine(gpus=[gpu(0), gpu(1)])


class Killed(BaseException):
    """The process is killed; this is not an error to handle."""


class KilledDisk(Disk):
    """A disk of a process that is killed before its nth step, or in the middle of a write."""

    def __init__(self, steps, *, writes_half=False):
        self.steps, self.writes_half = steps, writes_half

    def take(self, step):
        if self.steps == 0:
            if self.writes_half and isinstance(step, WriteFile):
                Path(step.path).write_bytes(step.data[: len(step.data) // 2])
            raise Killed
        self.steps -= 1
        super().take(step)


class FullDisk(Disk):
    """A disk without room for files whose paths contain `kind`."""

    def __init__(self, kind):
        self.kind = kind

    def take(self, step):
        if isinstance(step, WriteFile) and self.kind in step.path:
            raise OSError(28, "No space left on device")
        super().take(step)


def open_store(folder, disk=None, node_machine=MACHINE):
    (folder / "cdi").mkdir(exist_ok=True)
    return PreparedStore(Guard(node_machine, NODE), disk or Disk(), str(folder), str(folder / "cdi"), pods="")


def prepare(prepared_store, *claims):
    references = [reference(item.metadata.name) for item in claims]
    return prepared_store.prepare(references, {item.metadata.uid: item for item in claims})


def cdi_files(folder):
    return sorted(path.name for path in (folder / "cdi").iterdir())


def metadata_files(folder):
    """Return the names of the files that containers can read."""
    return sorted(path.name for path in (folder / "metadata").iterdir())


# Both claims have the same device.
CLAIM_A, CLAIM_B = claim("a", result("gpu-0")), claim("b", result("gpu-0"))
FILE_OF_A = f"drawbridge_{DRIVER}_uid-a.json"


def test_preparing_writes_checkpoint_and_cdi_file_and_is_repeatable(tmp_path):
    first = prepare(open_store(tmp_path), CLAIM_A)
    assert first["uid-a"].error == ""
    assert [device.cdi for device in first["uid-a"].devices] == [(f"{DRIVER}/claim=uid-a-0",)]
    assert (set(open_store(tmp_path).claims()), cdi_files(tmp_path)) == ({"uid-a"}, [FILE_OF_A])
    assert prepare(open_store(tmp_path), CLAIM_A) == first


def test_an_unprepared_claim_leaves_nothing_and_may_be_unprepared_again(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    for _ in range(2):
        assert open_store(tmp_path).unprepare([reference("a")])["uid-a"].error == ""
        assert (dict(open_store(tmp_path).claims()), cdi_files(tmp_path), metadata_files(tmp_path)) == ({}, [], [])


def test_a_refused_claim_does_not_block_the_others(tmp_path):
    answers = prepare(open_store(tmp_path), CLAIM_A, CLAIM_B, claim("c", result("gpu-1")))
    assert [bool(answers[uid].error) for uid in ("uid-a", "uid-b", "uid-c")] == [False, True, False]
    assert answers["uid-b"].error == "ResourceClaim ns/b: Taken: gpu-0 is prepared for ns/a"


@pytest.mark.parametrize("writes_half", [False, True], ids=["between steps", "in a write"])
def test_a_kill_at_any_step_of_preparing_is_repaired(tmp_path, writes_half):
    (tmp_path / "unkilled").mkdir()
    expected = prepare(open_store(tmp_path / "unkilled"), CLAIM_A)
    kills = 0
    for steps in range(40):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        try:
            prepare(open_store(folder, KilledDisk(steps, writes_half=writes_half)), CLAIM_A)
            break
        except Killed:
            kills += 1
        # Claim b gets the device only if claim a does not hold the device.
        answer = prepare(open_store(folder), CLAIM_B)["uid-b"]
        prepared_claims = open_store(folder).claims()
        assert len(prepared_claims) == 1
        assert ("uid-a" in prepared_claims) == bool(answer.error)
        if "uid-b" in prepared_claims:
            open_store(folder).unprepare([reference("b")])
        open_store(folder).repair()
        assert {name for name in cdi_files(folder) if not name.endswith(".json")} == set()
        assert prepare(open_store(folder), CLAIM_A) == expected
        assert cdi_files(folder) == [FILE_OF_A]
        assert metadata_files(folder) == ["uid-a_0.json"]
    assert kills == 8  # a checkpoint in four steps, and two files in two each


def test_a_kill_at_any_step_of_unpreparing_is_repaired(tmp_path):
    kills = 0
    for steps in range(40):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        prepare(open_store(folder), CLAIM_A)
        try:
            open_store(folder, KilledDisk(steps)).unprepare([reference("a")])
            break
        except Killed:
            kills += 1
        prepared_uids = set(open_store(folder).claims())
        assert bool(prepare(open_store(folder), CLAIM_B)["uid-b"].error) == ("uid-a" in prepared_uids)
        open_store(folder).repair()
        assert cdi_files(folder) == [f"drawbridge_{DRIVER}_{uid}.json" for uid in sorted(open_store(folder).claims())]
        assert metadata_files(folder) == [f"{uid}_0.json" for uid in sorted(open_store(folder).claims())]
        open_store(folder).unprepare([reference("a"), reference("b")])
        assert (dict(open_store(folder).claims()), cdi_files(folder)) == ({}, [])
    assert kills == 6  # the removal of two files, and a checkpoint in four steps


@pytest.mark.parametrize("kind", ["checkpoint", "cdi", "metadata"])
def test_a_full_disk_is_an_error_without_loss(tmp_path, kind):
    prepare(open_store(tmp_path), CLAIM_A)
    before = (tmp_path / "checkpoint").read_bytes()
    answers = prepare(open_store(tmp_path, FullDisk(kind)), CLAIM_A, claim("c", result("gpu-1")))
    assert answers["uid-a"].error == ""
    assert "No space left on device" in answers["uid-c"].error
    if kind == "checkpoint":
        assert (tmp_path / "checkpoint").read_bytes() == before
    assert prepare(open_store(tmp_path), claim("c", result("gpu-1")))["uid-c"].error == ""


def test_a_write_to_a_full_disk_leaves_no_partial_file(tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    assert "No space left" in prepare(open_store(tmp_path), CLAIM_A)["uid-a"].error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cdi", "lock", "metadata"]


def test_a_driver_starts_on_a_full_disk_and_repairs_later(tmp_path):
    first = prepare(open_store(tmp_path), CLAIM_A)
    (tmp_path / "cdi" / FILE_OF_A).unlink()
    open_store(tmp_path, FullDisk("cdi")).repair()
    assert cdi_files(tmp_path) == []
    assert prepare(open_store(tmp_path), CLAIM_A) == first
    assert cdi_files(tmp_path) == [FILE_OF_A]


def test_a_cdi_file_lost_in_a_reboot_is_written_again(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    written = (tmp_path / "cdi" / FILE_OF_A).read_bytes()
    (tmp_path / "cdi" / FILE_OF_A).unlink()
    open_store(tmp_path).repair()
    assert (tmp_path / "cdi" / FILE_OF_A).read_bytes() == written


@pytest.mark.parametrize("folder_name", ["cdi", "metadata"])
def test_files_deleted_while_the_driver_runs_are_restored(tmp_path, folder_name):
    prepare(open_store(tmp_path), CLAIM_A, claim("c", result("gpu-1")))
    store = open_store(tmp_path)
    folder = tmp_path / folder_name
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in sorted(written)[:1]:
        (folder / name).unlink()
    assert store.restore()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written
    shutil.rmtree(folder)
    assert store.restore()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written


def test_restoring_does_not_replace_a_changed_cdi_file(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    (tmp_path / "cdi" / FILE_OF_A).write_bytes(b"{}")
    open_store(tmp_path).restore()
    assert (tmp_path / "cdi" / FILE_OF_A).read_bytes() == b"{}"


def test_a_file_that_cannot_be_restored_does_not_block_others(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A, claim("c", result("gpu-1")))
    shutil.rmtree(tmp_path / "metadata")
    (tmp_path / "cdi" / FILE_OF_A).unlink()
    assert open_store(tmp_path, FullDisk("cdi")).restore() is False
    assert (len(cdi_files(tmp_path)), len(metadata_files(tmp_path))) == (1, 2)
    assert open_store(tmp_path).restore() is True
    assert len(cdi_files(tmp_path)) == 2


def test_preparing_a_claim_again_restores_its_modified_cdi_file(tmp_path):
    first = prepare(open_store(tmp_path), CLAIM_A)
    written = (tmp_path / "cdi" / FILE_OF_A).read_bytes()
    (tmp_path / "cdi" / FILE_OF_A).write_bytes(b"{}")
    assert prepare(open_store(tmp_path), CLAIM_A) == first
    assert (tmp_path / "cdi" / FILE_OF_A).read_bytes() == written


def test_only_files_without_a_prepared_claim_are_removed(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    for name in (
        f"drawbridge_{DRIVER}_gone.json",
        f"drawbridge_{DRIVER}_x.json.new",
        "nvidia.json",
        "drawbridge_other.example.com_x.json",
    ):
        (tmp_path / "cdi" / name).write_text("{}")
    open_store(tmp_path).repair()
    assert cdi_files(tmp_path) == [FILE_OF_A, "drawbridge_other.example.com_x.json", "nvidia.json"]


def test_a_metadata_file_is_world_readable_and_restored_when_lost(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    file = tmp_path / "metadata" / "uid-a_0.json"
    content = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o600
    (tmp_path / "metadata" / "uid-gone_0.json").write_text("{}")
    (tmp_path / "metadata" / "uid-a_0.json.new").write_text("{")
    file.unlink()
    open_store(tmp_path).repair()
    assert (metadata_files(tmp_path), file.read_bytes()) == ([file.name], content)


def test_a_truncated_checkpoint_is_refused_and_not_overwritten(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    data = (tmp_path / "checkpoint").read_bytes()
    (tmp_path / "checkpoint").write_bytes(data[:-1])
    for attempt in (
        lambda store: store.repair(),
        lambda store: prepare(store, CLAIM_B),
        lambda store: store.unprepare([reference("a")]),
    ):
        with pytest.raises(BrokenCheckpoint):
            attempt(open_store(tmp_path))
    assert (tmp_path / "checkpoint").read_bytes() == data[:-1]


def test_without_an_api_answer_only_prepared_claims_are_answered(tmp_path):
    first = prepare(open_store(tmp_path), CLAIM_A)
    references = [reference("a"), reference("b")]
    answers = open_store(tmp_path).prepare(references, {"uid-a": "no answer", "uid-b": "no answer"})
    assert answers["uid-a"] == first["uid-a"]
    assert "no answer" in answers["uid-b"].error
    answers_for_deleted = open_store(tmp_path).prepare(references[:1], {"uid-a": None})
    assert "the claim is gone" in answers_for_deleted["uid-a"].error


def test_only_one_of_two_concurrent_drivers_prepares_a_device(tmp_path):
    """Eight threads with a store each, on the same files, act like the drivers of a rolling update."""
    claims = [claim(f"c{number}", result("gpu-0")) for number in range(8)]
    answers = {}

    def prepare_in_own_store(stored_claim):
        answers.update(prepare(open_store(tmp_path), stored_claim))

    threads = [threading.Thread(target=prepare_in_own_store, args=(stored_claim,)) for stored_claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not answer.error for answer in answers.values()) == 1
    assert len(open_store(tmp_path).claims()) == 1


def test_the_lock_is_held_while_preparing_and_unpreparing(tmp_path):
    """A second descriptor of the lock file behaves like another process."""
    steps = []

    class WatchedDisk(Disk):
        def take(self, step):
            with (tmp_path / "lock").open() as lock_file:
                try:
                    fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    steps.append(type(step).__name__)
            super().take(step)

    prepare(open_store(tmp_path, WatchedDisk()), CLAIM_A)
    open_store(tmp_path, WatchedDisk()).unprepare([reference("a")])
    checkpoint = ["WriteFile", "SyncFile", "Rename", "SyncFolder"]
    assert steps == [*checkpoint, *["WriteFile", "Rename"] * 2, "Remove", "Remove", *checkpoint]


def test_two_drivers_see_each_others_changes_to_the_checkpoint(tmp_path):
    old_store, new_store = open_store(tmp_path), open_store(tmp_path)
    prepare(old_store, CLAIM_A)
    assert "Taken" in prepare(new_store, CLAIM_B)["uid-b"].error
    new_store.unprepare([reference("a")])
    assert prepare(old_store, CLAIM_B)["uid-b"].error == ""


CARD = {"deviceNodes": ["/dev/null:/dev/card"]}
VISIBLE_MACHINE = machine(gpus=[gpu(0, place=CARD), gpu(1)], visibleDevices="VISIBLE")
# By change of the inventory: the machine with which the driver starts again.
OTHER_MACHINES = {
    "without the device": machine(gpus=[gpu(1)], visibleDevices="VISIBLE"),
    "without any device": machine(),
    "without the variable": machine(gpus=[gpu(0, place=CARD)]),
    "another name": machine(gpus=[gpu(0, name="x", place=CARD)], visibleDevices="VISIBLE"),
    "another card of the name": machine(gpus=[gpu(0, uuid="GPU-9")], visibleDevices="VISIBLE"),
    "partitions": machine(layouts=[LAYOUT], gpus=[gpu(0, whole=False, layout="small")]),
    "without its files": machine(gpus=[gpu(0)], visibleDevices="VISIBLE"),
    "another file": machine(gpus=[gpu(0, place={"deviceNodes": ["/dev/zero"]})], visibleDevices="VISIBLE"),
}


def environment_of(folder):
    [device] = json.loads((folder / "cdi" / FILE_OF_A).read_bytes())["devices"]
    return device["containerEdits"]["env"]


def files_of(folder):
    return {path: path.read_bytes() for name in ("cdi", "metadata") for path in (folder / name).iterdir()}


@pytest.mark.parametrize("change", OTHER_MACHINES)
def test_a_running_pod_keeps_its_files_when_the_inventory_changes(tmp_path, change):
    """A container that restarts gets what its claim was given."""
    first = prepare(open_store(tmp_path, node_machine=VISIBLE_MACHINE), CLAIM_A)
    written = files_of(tmp_path)
    assert environment_of(tmp_path) == ["DRAWBRIDGE_DEVICE_GPU_0=GPU-0", "VISIBLE=GPU-0"]
    store = open_store(tmp_path, node_machine=OTHER_MACHINES[change])
    store.repair()
    assert store.restore()
    assert files_of(tmp_path) == written
    assert prepare(store, CLAIM_A) == first
    (tmp_path / "cdi" / FILE_OF_A).write_bytes(b"{}")
    store.repair()
    assert files_of(tmp_path) == written


@pytest.mark.parametrize(
    "change", ["without the device", "another card of the name", "partitions", "without its files"]
)
def test_no_file_is_written_after_a_reboot_until_the_hardware_is_there(tmp_path, change):
    """After a reboot another card can have the device file."""
    first = prepare(open_store(tmp_path, node_machine=VISIBLE_MACHINE), CLAIM_A)
    written = files_of(tmp_path)
    (tmp_path / "cdi" / FILE_OF_A).unlink()
    store = open_store(tmp_path, node_machine=OTHER_MACHINES[change])
    store.repair()
    assert "the machine does not offer gpu-0 now" in prepare(store, CLAIM_A)["uid-a"].error
    assert (store.restore(), cdi_files(tmp_path)) == (False, [])
    store.guard = Guard(VISIBLE_MACHINE, NODE)
    assert store.restore()
    assert files_of(tmp_path) == written
    assert prepare(store, CLAIM_A) == first


@pytest.mark.parametrize("by", ["start", "prepare"])
def test_a_card_whose_file_has_another_number_after_a_reboot_is_found_by_its_uuid(tmp_path, by):
    prepare(open_store(tmp_path, node_machine=VISIBLE_MACHINE), CLAIM_A)
    (tmp_path / "cdi" / FILE_OF_A).unlink()
    moved = machine(gpus=[gpu(0, name="x", place={"deviceNodes": ["/dev/zero:/dev/card"]})], visibleDevices="OTHER")
    if by == "start":
        open_store(tmp_path, node_machine=moved).repair()
    else:
        assert prepare(open_store(tmp_path, node_machine=moved), CLAIM_A)["uid-a"].error == ""
    [device] = json.loads((tmp_path / "cdi" / FILE_OF_A).read_bytes())["devices"]
    assert [node["hostPath"] for node in device["containerEdits"]["deviceNodes"]] == ["/dev/zero"]
    assert environment_of(tmp_path) == ["DRAWBRIDGE_DEVICE_GPU_0=GPU-0", "VISIBLE=GPU-0"]


def write_checkpoint_of_version_1(folder):
    """Replace the checkpoint by one that has only the names of the devices."""
    records = [
        replace(record, devices=tuple(replace(device, given=None) for device in record.devices))
        for record in open_store(folder).claims().values()
    ]
    (folder / "checkpoint").write_bytes(encode(Checkpoint().with_records(*records)))


@pytest.mark.parametrize("has_files", [True, False])
def test_a_record_without_hardware_is_completed_from_the_inventory(tmp_path, has_files):
    first = prepare(open_store(tmp_path), CLAIM_A)
    complete, written = dict(open_store(tmp_path).claims()), files_of(tmp_path)
    write_checkpoint_of_version_1(tmp_path)
    if not has_files:
        (tmp_path / "cdi" / FILE_OF_A).unlink()
    open_store(tmp_path).repair()
    assert (open_store(tmp_path).claims(), files_of(tmp_path)) == (complete, written)
    assert prepare(open_store(tmp_path), CLAIM_A) == first


@pytest.mark.parametrize("change", ["without the device", "another card of the name", "another name"])
def test_a_record_of_unknown_hardware_keeps_its_file_and_blocks_other_claims(tmp_path, change):
    """The driver was updated after the inventory had changed: only the file shows that claim a has another card."""
    first = prepare(open_store(tmp_path, node_machine=VISIBLE_MACHINE), CLAIM_A)
    written = files_of(tmp_path)
    write_checkpoint_of_version_1(tmp_path)
    store = open_store(tmp_path, node_machine=OTHER_MACHINES[change])
    store.repair()
    assert files_of(tmp_path) == written
    assert prepare(store, CLAIM_A) == first
    other = OTHER_MACHINES[change].devices[0]
    refused = prepare(store, claim("c", result(other.name)))["uid-c"].error
    assert "Taken" in refused
    store.unprepare([reference("a")])
    assert prepare(store, claim("c", result(other.name)))["uid-c"].error == ""


@pytest.mark.parametrize("is_old", [True, False], ids=["a checkpoint of version 1", "a moved file"])
def test_a_kill_at_any_step_of_a_start_keeps_the_device(tmp_path, is_old):
    moved = machine(gpus=[gpu(0, place={"deviceNodes": ["/dev/zero:/dev/card"]})])
    kills = 0
    for steps in range(40):
        folder = tmp_path / f"{steps}"
        folder.mkdir()
        prepare(open_store(folder, node_machine=machine(gpus=[gpu(0, place=CARD)])), CLAIM_A)
        if is_old:
            write_checkpoint_of_version_1(folder)
        shutil.rmtree(folder / "cdi")
        try:
            open_store(folder, KilledDisk(steps, writes_half=True), moved).repair()
            break
        except Killed:
            kills += 1
        assert "Taken" in prepare(open_store(folder, node_machine=moved), CLAIM_B)["uid-b"].error
        open_store(folder, node_machine=moved).repair()
        [device] = json.loads((folder / "cdi" / FILE_OF_A).read_bytes())["devices"]
        assert [node["hostPath"] for node in device["containerEdits"]["deviceNodes"]] == ["/dev/zero"]
    assert kills == 6  # a checkpoint in four steps, and a file in two


def test_a_driver_starts_on_a_full_disk_with_a_checkpoint_of_version_1(tmp_path):
    prepare(open_store(tmp_path), CLAIM_A)
    written = files_of(tmp_path)
    write_checkpoint_of_version_1(tmp_path)
    open_store(tmp_path, FullDisk("checkpoint")).repair()
    assert files_of(tmp_path) == written
    assert "Taken" in prepare(open_store(tmp_path), CLAIM_B)["uid-b"].error
