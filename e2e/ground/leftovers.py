"""Ending what a run left behind: processes by pid file, mounts and control groups by path, then the data.

The same code ends a run that was asked to end and one whose owner was killed, so it is tried with every run.
A real node lives in its own pid and mount namespaces (box.py): with the first process of the box gone, the kernel
ends the kubelet, containerd, its shims and all containers, and drops their mounts.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from e2e.ground.cache import say
from e2e.ground.process import RUN_VARIABLE, send, start_time, wait_gone

DETACHED = "detached"
KEPT_LOGS = 30
END_SECONDS = 60.0
CGROUPS = Path("/sys/fs/cgroup")


def sweep(runs: Path) -> None:
    """End every run below `runs` whose owner is gone, and forget the logs of all but the newest."""
    for root in sorted(runs.iterdir()):
        # A cluster left running on purpose whose processes are gone was ended by a restart of the machine.
        kept = (root / DETACHED).exists() and processes(root)
        if (root / "data").exists() and not kept and not owned(root):
            say(f"cleaning up after a run that was killed: {root}")
            end(root)
    ended = [root for root in sorted(runs.iterdir(), key=lambda r: r.stat().st_mtime) if not (root / "data").exists()]
    for root in ended[:-KEPT_LOGS]:
        if not owned(root):
            shutil.rmtree(root, ignore_errors=True)


def own(root: Path) -> IO[str]:
    """Take the lock of a run, as long as the returned file is open."""
    file = lock_file(root).open("w")
    file.write(f"{os.getpid()} {start_time(os.getpid())}")
    file.flush()
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def owned(root: Path) -> bool:
    """Tell whether the process that began the run still lives.

    The lock alone says it a moment too long: a child that the owner was just starting when it was killed has the lock too,
    until it becomes the program that it is to be. Only then can it be found and ended, so it is waited for.
    """
    deadline = time.monotonic() + END_SECONDS
    with lock_file(root).open("a+") as file:
        while not unlocked(file):
            if owner_lives(file) or time.monotonic() > deadline:
                return True
            time.sleep(0.01)
    return False


def unlocked(file: IO[str]) -> bool:
    try:
        # Shared, so that two processes that look at once do not take each other for the owner.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def owner_lives(file: IO[str]) -> bool:
    file.seek(0)
    pid, _, started = file.read().partition(" ")
    return not pid or start_time(int(pid)) == started


def lock_file(root: Path) -> Path:
    return root / "lock"


def end(root: Path) -> None:
    """End all processes of the run, then remove its mounts, control groups and data.

    The end is hard: what these processes would still write is not needed.
    """
    found = processes(root)
    for pid in found:
        send(pid, signal.SIGKILL)
    if stuck := wait_gone(found, END_SECONDS):
        raise RuntimeError(f"processes {stuck} of {root} do not end; look at them with ps and end them by hand")
    unmount(root / "data")
    remove_control_groups(root / "data")
    shutil.rmtree(root / "data", ignore_errors=True)
    shutil.rmtree(root / "pids", ignore_errors=True)
    (root / DETACHED).unlink(missing_ok=True)


def processes(root: Path) -> dict[int, str]:
    """Find the run's living processes, with their start times."""
    found = {}
    for file in (root / "pids").glob("*"):
        pid, _, started = file.read_text().partition(" ")
        if pid and start_time(int(pid)) == started:
            found[int(pid)] = started
    # A starter that was killed between the start and the pid file left only this trace.
    mark = f"{RUN_VARIABLE}={root}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = mark in environment(environ.parent).split(b"\0")
        except OSError:
            continue
        number = int(environ.parent.name)
        if marked and (begun := start_time(number)):
            found[number] = begun
    return found


def environment(process: Path) -> bytes:
    """Read a process's environment. One that is becoming a program has closed its files, and the run's lock with them, and has none yet."""
    deadline = time.monotonic() + END_SECONDS
    while not (text := (process / "environ").read_bytes()) and becomes_a_program(process):
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return text


def becomes_a_program(process: Path) -> bool:
    """Tell whether it is one that has no arguments yet. Other processes, as the kernel's own threads, raises OSError."""
    (process / "exe").readlink()
    return not (process / "cmdline").read_bytes()


def unmount(data: Path) -> None:
    """Unmount what is mounted below, deepest first (nothing is, when a node's box ended as it should)."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    for point in sorted((p for p in points if p.startswith(f"{data}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


def remove_control_groups(data: Path) -> None:
    """Remove the control groups of containers that ended with their node, in every hierarchy."""
    for container in (data / "node/containerd-state/io.containerd.runtime.v2.task/k8s.io").glob("*"):
        for group in [CGROUPS / "k8s.io" / container.name, *CGROUPS.glob(f"*/k8s.io/{container.name}")]:
            with suppress(OSError):  # not there in this hierarchy; and an empty group that stays costs nothing
                group.rmdir()
