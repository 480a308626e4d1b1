"""One supervised process: its command line, its log and its pid file.

The pid file contains pid and start time, because a pid alone may belong to another process by the time it is read.
The parent writes the file right after the start. If the parent is killed in between, the child is not lost: leftovers.py also
finds processes by the run's directory in their environment.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

RUN_VARIABLE = "DRAWBRIDGE_RUN"
# No process here needs the machine's public CAs; loading them takes a Python process a tenth of a second.
NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
GRACE_SECONDS = 60.0  # a process that takes longer hangs, also on a busy machine


class ProcessError(RuntimeError):
    """A process ended or never became ready; the message has the end of its log."""


class Process:
    """A program that was started with its output in a log file."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        root: Path,
        env: Mapping[str, str] | None = None,
        enter: Sequence[str] = (),
    ) -> None:
        """Start `argv` for the run at `root`; `enter` is a command that leads into namespaces first."""
        self.name = name
        self.argv = argv
        self.log = root / "logs" / f"{name}.log"
        self.entered = "--pid" in enter  # the command that enters the namespaces stays as the parent
        self.stopped = False
        with self.log.open("ab") as log:
            log.write(f"--- {' '.join(map(str, argv))}\n".encode())
            log.flush()
            self.child = subprocess.Popen(
                [*enter, *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | NO_AUTHORITIES | (env or {}) | {RUN_VARIABLE: str(root)},
                cwd=root,
                start_new_session=True,
                # With close_fds the child would release the run's lock before exec, when leftovers.py cannot yet find the child by its
                # environment. Without it the kernel closes the lock's descriptor at exec.
                close_fds=False,
            )
        self.pid_file = root / "pids" / name
        self.pid_file.write_text(f"{self.child.pid} {start_time(self.child.pid)}")

    @property
    def pid(self) -> int:
        """The program's own pid as seen from here, past the command that entered the namespaces."""
        if self.entered:
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text().split()
            return int(children[0]) if children else self.child.pid
        return self.child.pid

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def stop(self, *, hard: bool = False) -> None:
        """End the process, with SIGTERM unless `hard`, and wait until it is gone."""
        self.stopped = True
        if self.alive:
            send(self.pid, signal.SIGKILL if hard else signal.SIGTERM)
            try:
                self.child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                send(self.pid, signal.SIGKILL)
                self.child.wait(GRACE_SECONDS)
        self.child.wait()
        self.pid_file.unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process with SIGSTOP inside the block."""
        send(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            send(self.pid, signal.SIGCONT)
            # The command that entered the namespaces stops when its child stops.
            send(self.child.pid, signal.SIGCONT)

    @property
    def failed(self) -> bool:
        """Return whether the process has ended without being stopped."""
        return not self.stopped and not self.alive

    def check(self) -> None:
        """Raise with the end of the log if the process has ended by itself."""
        if self.failed:
            raise ProcessError(f"{self.name} ended with {self.child.returncode}; the end of {self.log}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        return tail(self.log, lines)


def tail(file: Path, lines: int = 20) -> str:
    """Return the last lines of a log, however long the log is."""
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - 64 * 1024))
        return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])


def start_time(pid: int) -> str | None:
    """Return the kernel's start time of a process (clock ticks since boot), None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_gone(pids: Mapping[int, str], seconds: float) -> list[int]:
    """Wait until the processes are gone and return those that are not."""
    deadline = time.monotonic() + seconds
    while remaining := [pid for pid, started in pids.items() if start_time(pid) == started]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return remaining
