"""Ends what a run left behind: processes by pid file, mounts and control groups by path, then the data.

The same code ends a run on request and a run whose owner was killed, so every run tests it.
A real node lives in its own pid and mount namespaces (box.py): when the first process of the box ends, the kernel
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
    """End every run below `runs` whose owner is gone, and delete the logs of all but the newest."""
    for root in sorted(runs.iterdir()):
        # If a detached cluster has no processes, the machine was restarted.
        is_detached = (root / DETACHED).exists() and processes(root)
        if (root / "data").exists() and not is_detached and not is_owned(root):
            say(f"cleaning up after a run that was killed: {root}")
            end(root)
    ended = [root for root in sorted(runs.iterdir(), key=lambda r: r.stat().st_mtime) if not (root / "data").exists()]
    for root in ended[:-KEPT_LOGS]:
        if not is_owned(root):
            shutil.rmtree(root, ignore_errors=True)


def own(root: Path) -> IO[str]:
    """Take the lock of a run; it is held while the returned file is open."""
    file = lock_file(root).open("w")
    file.write(f"{os.getpid()} {start_time(os.getpid())}")
    file.flush()
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def is_owned(root: Path) -> bool:
    """Return whether the process that began the run still lives.

    A child that the killed owner was just starting holds the lock, too, until it executes its program. Only then can it be found
    and ended, so this function waits for it.
    """
    deadline = time.monotonic() + END_SECONDS
    with lock_file(root).open("a+") as file:
        while not is_unlocked(file):
            if owner_lives(file) or time.monotonic() > deadline:
                return True
            time.sleep(0.01)
    return False


def is_unlocked(file: IO[str]) -> bool:
    try:
        # A shared lock, so that concurrent checks do not block each other like an owner.
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

    SIGKILL is enough: nothing that these processes would still write is needed.
    """
    remaining = processes(root)
    for pid in remaining:
        send(pid, signal.SIGKILL)
    if stuck := wait_gone(remaining, END_SECONDS):
        raise RuntimeError(f"processes {stuck} of {root} do not end; look at them with ps and end them by hand")
    unmount(root / "data")
    remove_control_groups(root / "data")
    shutil.rmtree(root / "data", ignore_errors=True)
    shutil.rmtree(root / "pids", ignore_errors=True)
    (root / DETACHED).unlink(missing_ok=True)


def processes(root: Path) -> dict[int, str]:
    """Find the run's living processes, with their start times."""
    matching = {}
    for file in (root / "pids").glob("*"):
        pid, _, started = file.read_text().partition(" ")
        if pid and start_time(int(pid)) == started:
            matching[int(pid)] = started
    # A process whose parent was killed before it wrote the pid file is known only by its environment.
    mark = f"{RUN_VARIABLE}={root}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            marked = mark in environment(environ.parent).split(b"\0")
        except OSError:
            continue
        number = int(environ.parent.name)
        if marked and (started_at := start_time(number)):
            matching[number] = started_at
    return matching


def environment(process: Path) -> bytes:
    """Read a process's environment. A process in execve has closed its files, and the run's lock with them, and has no environment yet."""
    deadline = time.monotonic() + END_SECONDS
    while not (text := (process / "environ").read_bytes()) and becomes_a_program(process):
        if time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return text


def becomes_a_program(process: Path) -> bool:
    """Return whether a process has no arguments yet; raise OSError if it never has any, as a kernel thread."""
    (process / "exe").readlink()
    return not (process / "cmdline").read_bytes()


def unmount(data: Path) -> None:
    """Unmount the mounts below a folder, deepest first. There are none if the node's box has ended properly."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    for point in sorted((p for p in points if p.startswith(f"{data}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=True)


def remove_control_groups(data: Path) -> None:
    """Remove the control groups of containers that ended with their node, in every hierarchy."""
    for container in (data / "node/containerd-state/io.containerd.runtime.v2.task/k8s.io").glob("*"):
        for group in [CGROUPS / "k8s.io" / container.name, *CGROUPS.glob(f"*/k8s.io/{container.name}")]:
            with suppress(OSError):  # not in this hierarchy; an empty group does no harm
                group.rmdir()
