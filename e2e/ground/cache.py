"""Where build products and runs live: outside the checkout, shared by all checkouts of one user."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache() -> Path:
    """Return DRAWBRIDGE_CACHE, or drawbridge/ in the user's XDG cache."""
    configured = os.environ.get("DRAWBRIDGE_CACHE")
    xdg = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = Path(configured) if configured else xdg / "drawbridge"
    root.mkdir(parents=True, exist_ok=True)
    return root.resolve()


@contextmanager
def locked(name: str) -> Iterator[int]:
    """Hold a lock that ends with this process, however it ends; print a line if another process holds it.

    A child that is given the yielded file descriptor holds the lock too, as long as it lives.
    """
    folder = cache() / "locks"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: waiting for another run, which holds this lock")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def say(text: str) -> None:
    """Print progress to stderr, so that piped output is not disturbed."""
    print(text, file=sys.stderr, flush=True)
