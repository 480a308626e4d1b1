"""The command line: one command, `drawbridge`, also `kubectl drawbridge`. It begins here: before anything is imported, SIGTERM is given the
effect that it has everywhere else.

A process that is the first of its container hears only the signals that it asked for (pid_namespaces(7)), and ours imports for seconds on
a busy node: one that was told to stop meanwhile went on until its pod's grace was over, and was killed. Nothing is begun by
then, so nothing is lost by ending at once; who has something to end in good order asks for the signal itself (`runtime.process.stopping`).
"""

from __future__ import annotations

import os
import signal
import sys

_FAILED = 3  # as cli.contract.Exit has it, which is not imported yet


def begin(called: str | None = None) -> None:
    """Run the `drawbridge` command; `called` is what its help calls it, where the program's own name does not say."""
    signal.signal(signal.SIGTERM, end)
    open_what_is_closed()
    from cli.main import main

    try:
        try:
            main(prog_name=called)
        finally:
            sys.stdout.flush()  # what is buffered finds no room here, and not when the interpreter ends, which is exit 120
    except OSError as error:  # a command answers for its own; this is help, or an answer that finds no room
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of it is written there
        if isinstance(error, BrokenPipeError):  # its reader has enough
            sys.exit(1)
        print(f"error: {error.strerror or error}", file=sys.stderr)
        sys.exit(_FAILED)


def open_what_is_closed() -> None:
    """Put nothing in the place of a standard stream that was closed: the next file that is opened would stand there."""
    streams = {"stdin": 0, "stdout": 1, "stderr": 2}
    for name, number in streams.items():
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  for as long as we run


def end(number: int, _: object) -> None:
    """End as the kernel would end us, if we were not the first process."""
    os._exit(128 + number)
