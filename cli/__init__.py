"""The entry point of the command line: `drawbridge`, also `kubectl drawbridge`.

SIGTERM gets a handler before the slow imports: PID 1 of a container receives only signals that it handles
(pid_namespaces(7)), so a pod deleted while we import would otherwise run until its grace period ends.
Nothing has started by then, so exiting at once is safe; servers install their own handler (`serving.process.stopping`).
"""

from __future__ import annotations

import os
import signal
import sys

CLOSED_PIPE = 128 + signal.SIGPIPE  # as the signal's default action would give
_FAILED = 3  # cli.exits.Exit.UNDECIDED, which is not imported yet


def begin(called: str | None = None) -> None:
    """Run the `drawbridge` command; `called` is the program name that help shows, if it differs from argv[0]."""
    signal.signal(signal.SIGTERM, end)
    open_closed_streams()
    from cli.main import main

    try:
        try:
            main(prog_name=called)
        finally:
            sys.stdout.flush()  # a full disk fails here; at interpreter exit it would be exit code 120
    except OSError as error:  # commands handle their own errors; here help or the rest of the output cannot be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard the rest of the buffer at exit
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe
            sys.exit(CLOSED_PIPE)
        print(f"error: {error.strerror or error}", file=sys.stderr)
        sys.exit(_FAILED)


def open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream; otherwise the next opened file would take its descriptor."""
    streams = {"stdin": 0, "stdout": 1, "stderr": 2}
    for name, number in streams.items():
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  for as long as we run


def end(number: int, _: object) -> None:
    """Exit with the code that the signal's default action would give."""
    os._exit(128 + number)
