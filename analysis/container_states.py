"""Finds containers that do not run, from the status of their pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.raw import inside, items, text
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.raw import Object

# Reasons of a container that the kubelet has not started to create, and of one that has done its work.
_STARTING = ("", "ContainerCreating", "PodInitializing")
_HEALTHY = frozenset((*_STARTING, "Completed"))
_RESTARTS = 3  # a container that has ended with an error this often does not recover by itself
_QUOTED = 400


def failing_containers(pod: Object, restarts: int = _RESTARTS) -> Iterator[str]:
    """Describe each container of a pod that the kubelet cannot start, or has restarted this often, with the last line that it wrote."""
    status = inside(pod, "status")
    for container in (*items(status, "initContainerStatuses"), *items(status, "containerStatuses")):
        waiting = inside(container, "state", "waiting")
        ended = inside(container, "state", "terminated") or inside(container, "lastState", "terminated")
        causes = {text(state.get("reason")) for state in (waiting, ended)} - _HEALTHY
        count = container.get("restartCount")
        restarted = count if isinstance(count, int) else 0
        cannot_start = text(waiting.get("reason")) not in _STARTING
        if causes and not container.get("ready") and (cannot_start or restarted >= restarts):
            after = f" after {count_of(restarted, 'restart')}" if restarted else ""
            # With terminationMessagePolicy FallbackToLogsOnError, the message has the last lines of the log.
            last_line = text(ended.get("message") or waiting.get("message")).strip().rpartition("\n")[2][:_QUOTED]
            words = f"container {text(container.get('name'))}: {', '.join(sorted(causes))}{after}"
            yield f"{words}: {last_line}" if last_line else words
