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


def set_clock(file: Path, seconds: float) -> None:
    """Set the clock of the processes that read it from a file."""
    temporary = file.with_suffix(".new")
    temporary.write_text(str(seconds))
    temporary.rename(file)


def seconds_ahead(file: Path) -> float:
    try:
        return float(file.read_text())
    except FileNotFoundError:
        return 0.0


def read_time_from(file: Path) -> None:
    """Make this process read the time from a file."""

    def shifted_time() -> float:
        return REAL() + seconds_ahead(file)

    class ShiftedDatetime(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> "ShiftedDatetime":
            return cls.fromtimestamp(shifted_time(), tz)

    time.time = shifted_time
    time.time_ns = lambda: round(shifted_time() * 1e9)
    dt.datetime = ShiftedDatetime  # type: ignore[misc]


def main() -> None:
    read_time_from(Path(sys.argv.pop(1)))
    from cli.main import main as drawbridge

    drawbridge()


if __name__ == "__main__":
    main()
