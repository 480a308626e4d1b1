"""A killed process, a full disk or a concurrent edit leaves no half-written file."""

import fcntl
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import analysis.edited
import analysis.undo
from cli.main import main
from tests.cli.killed import files
from tests.cli.running import run
from tests.corpus.kustomizations import deployment

ODD = {
    "crlf.yaml": b"\xef\xbb\xbf" + deployment("crlf").replace("\n", "\r\n").encode(),
    "open.yaml": deployment("open").rstrip("\n").encode(),
}


@pytest.fixture
def original(tmp_path):
    folder = tmp_path / "original"
    (folder / ".git").mkdir(parents=True)
    for name, text in ODD.items():
        (folder / name).write_bytes(text)
    (folder / "open.yaml").chmod(0o755)
    (folder / "link.yaml").symlink_to("open.yaml")
    return folder


def test_a_killed_run_can_be_undone_and_repeated(original):
    first = files(original)
    result = subprocess.run([sys.executable, "-m", "tests.cli.killed", original.parent], stdout=subprocess.PIPE, text=True, timeout=150, check=True)  # fmt: skip
    *killed, whole = map(json.loads, result.stdout.splitlines())
    assert len(killed) > 4 * len(ODD)
    edited = whole["--in-place"]
    assert edited.keys() == first.keys()
    assert all(edited[name][0] != first[name][0] for name in ODD)
    assert edited["open.yaml"][1] == first["open.yaml"][1]
    for number, trees in enumerate(killed, 1):
        assert trees["killed"]
        assert trees["--undo"] == first, number
        assert trees["--in-place --undo"] == first, number
        assert trees["--in-place"] == edited, number


@pytest.fixture
def begin(original, monkeypatch):
    """A function that starts the command in the folder, with a limit for the size of the files that it writes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))

    def begun(step, most=-1):
        running = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "translate", step, "."],
            cwd=original,
            env={**os.environ, "PATH": "", "PYTHONPATH": str(Path.cwd())},
            stderr=subprocess.PIPE,
            text=True,
        )
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (most, most))
        return running

    return begun


def test_a_full_disk_is_reported_and_changes_no_file(original, begin):
    before = files(original)
    with begin("--in-place", 600) as running:
        assert "crlf.yaml: File too large" in running.communicate(timeout=60)[1]
    assert running.returncode == 3
    assert files(original) == before


def test_a_file_changed_after_it_was_read_is_not_edited(original, monkeypatch, capsys):
    monkeypatch.chdir(original)
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))
    read = analysis.edited.text_at

    def changed(path, root):
        with Path(path).open("a") as file:
            file.write("# as another process does\n---\n")
        return read(path, root)

    monkeypatch.setattr(analysis.edited, "text_at", changed)
    with pytest.raises(SystemExit) as ended:
        main(["translate", "--in-place", "open.yaml"])
    assert ended.value.code == 3
    assert "open.yaml: the file changed during the command: run it again" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["--in-place", "--undo"])
def test_a_write_holds_the_undo_lock(original, step, monkeypatch):
    monkeypatch.chdir(original)
    monkeypatch.setenv("XDG_STATE_HOME", str(original.with_name("state")))
    assert run("translate", "--in-place", ".").exit_code == 0
    if step == "--in-place":
        (original / "open.yaml").write_bytes(ODD["open.yaml"])
    write, alone = analysis.undo.write, []

    def noted(edits):
        with Path(os.environ["XDG_STATE_HOME"], "drawbridge", "undo", "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone.append(step)
        write(edits)

    monkeypatch.setattr(analysis.undo, "write", noted)
    assert run("translate", step, ".").exit_code == 0
    assert alone == [step]


def test_two_simultaneous_runs_edit_the_files_once(original, begin):
    before = files(original)
    with begin("--in-place") as first_run, begin("--in-place") as other:
        outputs = first_run.communicate(timeout=100)[1], other.communicate(timeout=100)[1]
    edited = files(original)
    assert [edited[name] != before[name] for name in ODD] == [True, True]
    assert 0 in (first_run.returncode, other.returncode)
    assert {first_run.returncode, other.returncode} == {0} or any(
        "the file changed during the command" in text for text in outputs
    )
    with begin("--undo") as undone:
        undone.communicate(timeout=60)
    assert files(original) == before
