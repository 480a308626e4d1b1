"""Runs the tasks of a long-running process until the process must stop, then drains and ends it. Also finds its pod, node and namespace."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.http import Address
    from serving.metrics import MetricsPort

Work = Callable[[], Coroutine[Any, Any, object]]
logger = logging.getLogger("drawbridge.process")
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"  # in every pod with a token


def stopping() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set. A second signal has its original effect."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGINT)}

    def stop_once() -> None:
        stop.set()
        for number, effect in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, effect)

    for number in before:
        loop.add_signal_handler(number, stop_once)
    return stop


async def run_until(
    stop: asyncio.Event,
    *works: Work,
    metrics: MetricsPort,
    at: Address | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve metrics and probes, and run all `works` until `stop` is set.

    Then the process becomes unready, drains while the works continue, and cancels them. An error in one of the works ends all of them.
    """
    async with metrics.serving(at), asyncio.TaskGroup() as group:
        tasks = [group.create_task(work()) for work in works]
        await stop.wait()
        logger.info("stopping")
        metrics.draining = True
        if drain is not None:
            await drain()
        for task in tasks:
            task.cancel()


def own_name() -> str:
    """Return the name of this process' pod, or of the machine."""
    return os.environ.get("POD_NAME") or socket.gethostname()


def own_node() -> str:
    """Return the name of this process' node from its DaemonSet's environment; "" if it is not set."""
    return os.environ.get("NODE_NAME", "")


def own_namespace() -> str:
    """Return this process' namespace; drawbridge-system outside a pod."""
    if named := os.environ.get("POD_NAMESPACE"):
        return named
    try:
        return Path(_NAMESPACE_FILE).read_text().strip()
    except OSError:
        return "drawbridge-system"
