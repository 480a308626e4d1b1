"""Runs the event loop of commands, uvloop if it is installed (extra `fast`), else asyncio's own, and connects to clusters.

The garbage collector stops the loop: one full collection over a cluster's objects delayed a review by 46 ms. A cluster's objects live long,
so collections are rare while the objects are read, and `exempt_from_collection` exempts the objects afterwards.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from serving.process import stopping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from cluster.kubernetes import Kubernetes

T = TypeVar("T")

# Net allocations between two collections of the youngest generation, and collections of a generation between two of the next one.
GC_THRESHOLDS = 10_000, 10, 50
# glibc returns freed blocks above this size to the system at once. Otherwise the lists of objects that are read at the start leave holes in
# the heap, which grows by up to 50 of 250 MiB (bench/hostile_store.py). uvloop reads TLS into new blocks of 256 KiB, which must not cost three
# system calls for each request.
M_MMAP_THRESHOLD, LARGE_BLOCK = -3, 512 * 1024  # mallopt's parameter, bytes
ADDRESS_IN_USE = "stop the process that uses this address, or choose another one"


def run(main: Coroutine[object, object, T]) -> T:
    """Run a coroutine in a new event loop."""
    gc.set_threshold(*GC_THRESHOLDS)
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):  # only glibc has it
        set_option(M_MMAP_THRESHOLD, LARGE_BLOCK)
    try:
        from uvloop import new_event_loop
    except ImportError:  # optional; asyncio's loop is a fifth slower
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def serve(
    kubeconfig: str,
    context: str,
    process: Callable[[Kubernetes, asyncio.Event], Awaitable[None]],
    address_in_use: str = ADDRESS_IN_USE,
) -> None:
    """Run a server that uses a cluster until it is stopped; `address_in_use` is the remedy if its address is in use."""
    from analysis.errors import Failed
    from cluster.errors import ClusterError
    from cluster.kubernetes import Kubernetes

    async def connect_and_run() -> None:
        cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
        try:
            await process(cluster, stopping())
        finally:
            await cluster.close()

    try:
        run(connect_and_run())
    except* (ClusterError, OSError) as group:
        error = first_exception(group)
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise Failed(str(error), address_in_use if in_use else "") from None


def visit(kubeconfig: str, context: str, look: Callable[[Kubernetes], Awaitable[T]], page: str) -> T:
    """Run `look` on the cluster of the kubeconfig; `page` is the docs page with the rights that the command needs."""
    from analysis.errors import Failed
    from cli.exits import NoCluster
    from cluster.errors import ClusterError, ConfigError, Unauthorized
    from cluster.kubernetes import Kubernetes

    certificate = ""

    async def connect_and_run() -> T:
        nonlocal certificate
        cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
        try:
            return await look(cluster)
        finally:
            certificate = getattr(cluster, "certificate", "")  # an embedded cluster has none
            await cluster.close()

    error: BaseException
    try:
        return run(connect_and_run())
    except* ClusterError as group:
        error = first_exception(group)
    # Raised here, because Python before 3.11.5 wraps an exception raised in except* in a group.
    if isinstance(error, Unauthorized) and (problem := problem_of(certificate, datetime.now(UTC))):
        raise Failed(f"{problem} ({error})", "log in again, or get a new certificate") from None
    ending = NoCluster if isinstance(error, ConfigError) else Failed
    raise ending(str(error), remedy_for(error, page)) from None


def problem_of(certificate: str, now: datetime) -> str:
    """Explain why a server refuses the client certificate in this file; "" if unknown."""
    from certs import authority

    try:
        span = authority.span(Path(certificate).read_bytes())
    except (OSError, ValueError):
        return ""
    if now >= span.end:
        return f"the client certificate of the kubeconfig expired at {span.end:%Y-%m-%d %H:%M}, {(now - span.end).days} days ago"
    return ""


def remedy_for(error: BaseException, page: str) -> str:
    """Return the remedy for an error of the cluster."""
    from cluster.errors import ApiError, ConfigError, Forbidden, Throttled, Unauthorized, Unavailable

    match error:
        case Unauthorized():
            return "the token or certificate may have expired: log in again, or check --kubeconfig and --context"
        case ConfigError():
            return "name a kubeconfig with --kubeconfig or in $KUBECONFIG, and one of its contexts with --context"
        case Forbidden():
            return f"ask for the rights listed in {page}"
        case Throttled():
            return "try again in a minute; if the error remains, look for clients that send too many requests"
        case Unavailable():
            return "try again when the API server answers; if other clients reach it, check --kubeconfig and --context"
        case ApiError(status=HTTPStatus.INTERNAL_SERVER_ERROR):
            return "look at the log of the API server and at etcd, which may have no space (NOSPACE)"
    return f"check --kubeconfig, --context and your rights ({page})"


def exempt_from_collection() -> None:
    """Exempt all present objects from garbage collection, once the program has started."""
    gc.freeze()


def first_exception(group: BaseException) -> BaseException:
    """Return the first exception of nested groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
