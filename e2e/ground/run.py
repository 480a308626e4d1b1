"""The directory of one run: its logs, pid files and data, and the lock that tells a live run from a dead one."""

import tempfile
import time
from pathlib import Path
from typing import IO

from e2e.ground import leftovers
from e2e.ground.cache import cache, locked


class Run:
    """A run's directory, locked as long as the owner lives.

    The kernel drops the lock when the owner dies, however it dies. A run whose lock is free and that was not handed
    over on purpose (`detach`) is therefore a leftover, and the next run cleans it up.
    """

    def __init__(self, name: str) -> None:
        """Make the directory and take its lock."""
        runs = folder()
        with locked("runs"):  # without its lock, another run would take the directory for a leftover
            leftovers.sweep(runs)
            self.root = Path(tempfile.mkdtemp(dir=runs, prefix=f"{time.strftime('%m%d-%H%M%S')}-{name}-"))
            self.root.chmod(0o755)
            self.lock: IO[str] = leftovers.own(self.root)
            # A sweep looks for the folder `data`. It is created first, so that a run that is killed before the others exist is cleaned up.
            for part in (self.data, self.pids, self.logs):
                part.mkdir()

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def detach(self) -> None:
        """Let the processes of this run outlive this process."""
        (self.root / leftovers.DETACHED).touch()
        self.lock.close()

    def end(self) -> None:
        """End what is left of the run and remove its data; the logs stay."""
        leftovers.end(self.root)
        self.lock.close()


def detached() -> list[Path]:
    """Find the runs that were left running on purpose and still run."""
    roots = (root for root in folder().glob("*") if (root / leftovers.DETACHED).exists())
    return [root for root in roots if leftovers.processes(root)]


def folder() -> Path:
    """Return the directory that holds all runs."""
    runs = cache() / "runs"
    runs.mkdir(exist_ok=True)
    return runs
