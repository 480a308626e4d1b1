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
from node.checkpoint import Write
from node.service.disk import Disk
from node.service.prepared_store import PreparedStore

# The work in progress, the step, and the file.
DEATHS = [
    "prepare Write checkpoint",
    "prepare half checkpoint",
    "prepare SyncFile checkpoint",
    "prepare Rename checkpoint",
    "prepare SyncFolder checkpoint",
    "prepare Write cdi",
    "prepare half cdi",
    "repair Remove cdi",
    "repair Write cdi",
    "repair Rename cdi",
    "prepare Rename cdi",
    "prepare answer",
    "forget Remove cdi",
    "forget Write checkpoint",
    "forget half checkpoint",
    "forget SyncFile checkpoint",
    "forget Rename checkpoint",
    "forget SyncFolder checkpoint",
    "forget answer",
]
DIES = "dies before: "
TAKE = Disk.take
WORKS = {name: getattr(PreparedStore, name) for name in ("prepare", "forget", "repair")}


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
        for name in WORKS:
            setattr(PreparedStore, name, self.working(name))

    def working(self, name):
        def work(store, *arguments):
            with self.at(name):
                answer = WORKS[name](store, *arguments)
                # The kubelet also unprepares unknown claims.
                if self.took or any(not answer.error for answer in (answer or {}).values()):
                    self.meet("answer", "")
            return answer

        return work

    @contextmanager
    def at(self, name):
        self.doing, self.took = name, False
        try:
            yield
        finally:
            self.doing = ""

    def step(self, disk, step):
        self.took = True
        file = "cdi" if "/cdi/" in step.path else "checkpoint"
        self.meet(type(step).__name__, file)
        if isinstance(step, Write) and self.before == f"{self.doing} half {file}":
            Path(step.path).write_bytes(step.data[: len(step.data) // 2])
            self.meet("half", file)
        TAKE(disk, step)

    def meet(self, step, file):
        if f"{self.doing} {step} {file}".strip() == self.before:
            print(f"{DIES}{self.before}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def live(before=""):
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
        ended = live(death)
        if ended != -signal.SIGKILL:
            sys.exit(ended)
    sys.exit(live())
