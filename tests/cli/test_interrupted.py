"""A killed process, a full disk or a concurrent edit leaves no half-written file."""

import fcntl
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import cli.edited
import cli.undo
from cli.main import main
from tests.cli.killed import files
from tests.cli.running import run
from tests.corpus.kustomizations import deployment
from tests.limits import draws

UNUSUAL_FILES = {
    "crlf.yaml": b"\xef\xbb\xbf" + deployment("crlf").replace("\n", "\r\n").encode(),
    "open.yaml": deployment("open").rstrip("\n").encode(),
}


@pytest.fixture
def original(tmp_path):
    """A repository with manifests of unusual bytes and modes, and with a link."""
    folder = tmp_path / "original"
    (folder / ".git").mkdir(parents=True)
    for name, text in UNUSUAL_FILES.items():
        (folder / name).write_bytes(text)
    (folder / "open.yaml").chmod(0o755)
    (folder / "link.yaml").symlink_to("open.yaml")
    return folder


@pytest.mark.whole
def test_a_killed_run_can_be_undone_and_repeated(original):
    before, step = files(original), 8 // draws(8)
    command = [sys.executable, "-m", "tests.cli.killed", original.parent, str(step)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    *killed_runs, complete_run = map(json.loads, result.stdout.splitlines())
    assert len(killed_runs) > 4 * len(UNUSUAL_FILES) // step
    edited = complete_run["--in-place"]
    assert edited.keys() == before.keys()
    assert all(edited[name][0] != before[name][0] for name in UNUSUAL_FILES)
    assert edited["open.yaml"][1] == before["open.yaml"][1]
    for number, outcome in enumerate(killed_runs, 1):
        assert outcome["killed"]
        assert outcome["--undo"] == before, number
        assert outcome["--in-place --undo"] == before, number
        assert outcome["--in-place"] == edited, number


@pytest.fixture
def start_command(original, monkeypatch):
    """A function that starts `drawbridge translate` in the repository, with a maximum size in bytes of each file that it writes (-1: none)."""
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))

    def start(step, size_limit=-1):
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "translate", step, "."],
            cwd=original,
            # The limit would also truncate compiled modules, and every later import of them would fail.
            env={**os.environ, "PATH": "", "PYTHONPATH": str(Path.cwd()), "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size_limit, size_limit))
        return process

    return start


def test_a_full_disk_is_reported_and_changes_no_file(original, start_command):
    """A limit of the size of files stands for a full disk."""
    before = files(original)
    with start_command("--in-place", 600) as process:
        assert "crlf.yaml: File too large" in process.communicate(timeout=60)[1]
    assert process.returncode == 3
    assert files(original) == before


def test_a_file_changed_after_it_was_read_is_not_edited(original, monkeypatch, capsys):
    monkeypatch.chdir(original)
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))
    read_text = cli.edited.text_at

    def read_and_change(path, root):
        with Path(path).open("a") as file:
            file.write("# as another process does\n---\n")
        return read_text(path, root)

    monkeypatch.setattr(cli.edited, "text_at", read_and_change)
    with pytest.raises(SystemExit) as raised:
        main(["translate", "--in-place", "open.yaml"])
    assert raised.value.code == 3
    assert "open.yaml: the file changed during the command: run it again" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["--in-place", "--undo"])
def test_a_write_holds_the_undo_lock(original, step, monkeypatch):
    monkeypatch.chdir(original)
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))
    assert run("translate", "--in-place", ".").exit_code == 0
    if step == "--in-place":
        (original / "open.yaml").write_bytes(UNUSUAL_FILES["open.yaml"])
    write, steps_with_lock = cli.undo.write, []

    def write_while_locked(edits):
        with Path(os.environ["XDG_STATE_HOME"], "drawbridge", "undo", "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                steps_with_lock.append(step)
        write(edits)

    monkeypatch.setattr(cli.undo, "write", write_while_locked)
    assert run("translate", step, ".").exit_code == 0
    assert steps_with_lock == [step]


@pytest.mark.whole
def test_two_simultaneous_runs_edit_the_files_once(original, start_command):
    before = files(original)
    with start_command("--in-place") as first_run, start_command("--in-place") as second_run:
        outputs = first_run.communicate(timeout=100)[1], second_run.communicate(timeout=100)[1]
    edited = files(original)
    assert [edited[name] != before[name] for name in UNUSUAL_FILES] == [True, True]
    assert 0 in (first_run.returncode, second_run.returncode)
    assert {first_run.returncode, second_run.returncode} == {0} or any(
        "the file changed during the command" in text for text in outputs
    )
    with start_command("--undo") as undo_run:
        undo_run.communicate(timeout=60)
    assert files(original) == before
