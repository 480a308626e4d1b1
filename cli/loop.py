"""The event loop that long-running commands use: uvloop where it is installed (extra `fast`), else asyncio's own.

And when Python looks for garbage meanwhile, for it stops everything to do so. What a cluster is read into stays, so there is
little to find while it is read, and nothing afterwards: a look through all of it took 46 ms of a review's time.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from runtime.process import stopping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from cluster.kubernetes import Kubernetes

T = TypeVar("T")

# Objects that are made, and not given back, between two looks for garbage.
YOUNG = 50_000
# Of glibc's mallopt. What is larger is given back to the system when it is freed; else the heap grows in steps around lists read at
# the start, by up to 50 of 250 MiB (bench/hostile_store.py).
M_MMAP_THRESHOLD, LARGE = -3, 128 * 1024
TAKEN = "stop the process that uses that address, or say another address"


def run(main: Coroutine[object, object, T]) -> T:
    """Run a program to its end."""
    gc.set_threshold(YOUNG)
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc alone has it
        set_option(M_MMAP_THRESHOLD, LARGE)
    try:
        from uvloop import new_event_loop
    except ImportError:  # an optional extra; a fifth slower without it
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def serve(
    kubeconfig: str, context: str, process: Callable[[Kubernetes, asyncio.Event], Awaitable[None]], taken: str = TAKEN
) -> None:
    """Run a process beside a cluster until it is told to stop; `taken` helps where an address of it is in use."""
    from cli.contract import CommandFailed
    from cluster.errors import ClusterError
    from cluster.kubernetes import Kubernetes

    async def there() -> None:
        cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
        try:
            await process(cluster, stopping())
        finally:
            await cluster.close()

    try:
        run(there())
    except* (ClusterError, OSError) as group:
        error = first(group)
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise CommandFailed(str(error), taken if is_taken else "") from None


def visit(kubeconfig: str, context: str, look: Callable[[Kubernetes], Awaitable[T]], page: str) -> T:
    """Look at the cluster that kubectl talks to; `page` says which rights that takes."""
    from cli.contract import CommandFailed
    from cluster.errors import ClusterError, Unauthorized
    from cluster.kubernetes import Kubernetes

    shown = ""

    async def there() -> T:
        nonlocal shown
        cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
        try:
            return await look(cluster)
        finally:
            shown = getattr(cluster, "certificate", "")  # an embedded cluster shows none
            await cluster.close()

    error: BaseException
    try:
        return run(there())
    except* ClusterError as group:
        error = first(group)
    # Not raised above: Python before 3.11.5 puts what is raised there into a group.
    if isinstance(error, Unauthorized) and (problem := problem_of(shown, datetime.now(UTC))):
        raise CommandFailed(f"{problem} ({error})", "log in again, or have another one made") from None
    raise CommandFailed(str(error), remedy_for(error, page)) from None


def problem_of(certificate: str, now: datetime) -> str:
    """Say why a server takes no client certificate, by its file; "" if that is not known."""
    from certs import authority

    try:
        span = authority.span(Path(certificate).read_bytes())
    except (OSError, ValueError):
        return ""
    if now >= span.end:
        return f"the client certificate of the kubeconfig expired at {span.end:%Y-%m-%d %H:%M}, {(now - span.end).days} days ago"
    return ""


def remedy_for(error: BaseException, page: str) -> str:
    """Say what helps where a cluster could not be looked at."""
    from cluster.errors import ConfigError, Forbidden, Unauthorized, Unavailable

    match error:
        case Unauthorized():
            return "the token or certificate is not accepted, it may have expired: log in again, or check --kubeconfig and --context"
        case ConfigError():
            running = click.get_current_context(silent=True)
            takes_files = running is not None and any(one.name == "files" for one in running.command.params)
            or_files = ", or read files with -f" if takes_files else ""
            return f"name a kubeconfig with --kubeconfig or in $KUBECONFIG, and one of its contexts with --context{or_files}"
        case Forbidden():
            return f"have yourself given the rights of {page}"
        case Unavailable():
            return "try again when the API server answers; if it does elsewhere, check --kubeconfig and --context"
    return f"check --kubeconfig, --context and your rights ({page})"


def settle() -> None:
    """Look for garbage no more among what is there now: the program has started, and keeps it."""
    gc.freeze()


def first(group: BaseException) -> BaseException:
    """What went wrong first, however deep in groups it stands."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
