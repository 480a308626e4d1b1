"""Runs our driver, and kills it with SIGKILL before each step of `DEATHS` in turn. After each death a new driver process starts.

The driver's code is unmodified, except that its disk and its methods are wrapped: the wrappers log the step and kill the process.
"""

import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import cli.commands.driver  # noqa: F401  imported once, before the forks
import cluster.kubernetes  # noqa: F401
from cli.main import main
from node.checkpoint import WriteFile
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore

# The work in progress, the step, and the file.
DEATHS = [
    "prepare WriteFile checkpoint",
    "prepare half checkpoint",
    "prepare SyncFile checkpoint",
    "prepare Rename checkpoint",
    "prepare SyncFolder checkpoint",
    "prepare WriteFile cdi",
    "prepare half cdi",
    "repair Remove cdi",
    "repair WriteFile cdi",
    "repair Rename cdi",
    "prepare Rename cdi",
    "prepare answer",
    "forget Remove cdi",
    "forget WriteFile checkpoint",
    "forget half checkpoint",
    "forget SyncFile checkpoint",
    "forget Rename checkpoint",
    "forget SyncFolder checkpoint",
    "forget answer",
]
DIES_BEFORE = "dies before: "
REAL_TAKE = Disk.take
REAL_METHODS = {name: getattr(PreparedStore, name) for name in ("prepare", "forget", "repair")}


class Death(threading.local):
    """Ends the process before one step; each thread records the work that it is doing."""

    doing = ""
    took = False

    def __init__(self, before):
        self.before = before

    def install(self):
        def take(disk, step):
            self.step(disk, step)

        Disk.take = take
        for name in REAL_METHODS:
            setattr(PreparedStore, name, self.wrapped(name))

    def wrapped(self, name):
        def work(store, *arguments):
            with self.during(name):
                answer = REAL_METHODS[name](store, *arguments)
                # The kubelet also unprepares unknown claims.
                if self.wrote or any(not answer.error for answer in (answer or {}).values()):
                    self.die_before("answer", "")
            return answer

        return work

    @contextmanager
    def during(self, name):
        self.work, self.wrote = name, False
        try:
            yield
        finally:
            self.work = ""

    def step(self, disk, step):
        self.wrote = True
        file = "cdi" if "/cdi/" in step.path else "checkpoint"
        self.die_before(type(step).__name__, file)
        if isinstance(step, WriteFile) and self.before == f"{self.work} half {file}":
            Path(step.path).write_bytes(step.data[: len(step.data) // 2])
            self.die_before("half", file)
        REAL_TAKE(disk, step)

    def die_before(self, step, file):
        if f"{self.work} {step} {file}".strip() == self.before:
            print(f"{DIES_BEFORE}{self.before}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def run_driver(before=""):
    """Run the driver in a process of its own until it dies or ends; return how it ended."""
    child = os.fork()
    if not child:
        if before:
            Death(before).install()
        main()
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for death in DEATHS:
        ended = run_driver(death)
        if ended != -signal.SIGKILL:
            sys.exit(ended)
    sys.exit(run_driver())
