"""Runs drawbridge with a wall clock that tests can set: `python -m e2e.actors.clock FILE ARGUMENTS...` is `drawbridge ARGUMENTS...`.

FILE contains the number of seconds by which the clock is fast; if there is no such file, the clock is right. Only Python's `time` and
`datetime` are changed, because our code gets the date from nothing else. The monotonic clock is not changed: on a real machine it
cannot be set either.
"""

import datetime as dt
import sys
import time
from pathlib import Path

REAL = time.time


def command(file: Path) -> list[str]:
    """Return the command that starts drawbridge with a clock."""
    return [sys.executable, "-m", "e2e.actors.clock", str(file)]


def turn(file: Path, seconds: float) -> None:
    """Set the clock of the processes that read it from a file."""
    fresh = file.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.rename(file)


def ahead(file: Path) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 0.0


def read_time_from(file: Path) -> None:
    """Make this process read the time from a file."""

    def moved() -> float:
        return REAL() + ahead(file)

    class Moved(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> "Moved":
            return cls.fromtimestamp(moved(), tz)

    time.time = moved
    time.time_ns = lambda: round(moved() * 1e9)
    dt.datetime = Moved  # type: ignore[misc]


def main() -> None:
    read_time_from(Path(sys.argv.pop(1)))
    from cli.main import main as drawbridge

    drawbridge()


if __name__ == "__main__":
    main()
