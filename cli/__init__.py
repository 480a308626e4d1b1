"""The command line: one command, `drawbridge`, also `kubectl drawbridge`. It begins here: before anything is imported, SIGTERM is given the
effect that it has everywhere else.

A process that is the first of its container hears only the signals that it asked for (pid_namespaces(7)), and ours imports for seconds on
a busy node: one that was told to stop meanwhile went on until its pod's grace was over, and was killed. Nothing is begun by
then, so nothing is lost by ending at once; who has something to end in good order asks for the signal itself (`cli.loop.stopping`).
"""

from __future__ import annotations

import os
import signal


def begin() -> None:
    """Run the `drawbridge` command."""
    signal.signal(signal.SIGTERM, end)
    from cli.main import main

    main()


def end(number: int, _: object) -> None:
    """End as the kernel would end us, if we were not the first process."""
    os._exit(128 + number)
