"""Events, which `kubectl describe` shows below an object (client-go tools/record).

An event that is repeated is written at most once every few seconds, with the count of its repetitions. Its name is derived from its content,
so that a restarted process finds it again. An event that cannot be written is logged and dropped: nothing may depend on events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from cluster.errors import AlreadyExists, ApiError, NotFound
from cluster.patch import Merge
from cluster.resources import EVENTS, metadata, resource_of
from dra.names import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster

logger = logging.getLogger("drawbridge.events")
MAX_REMEMBERED = 4096  # the most events that are remembered
WRITE_INTERVAL = 5.0  # seconds between two writes of an event, at least
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 200
_HASH_DIGITS = 16


class _Written(msgspec.Struct):
    """What this process last wrote of an event."""

    message: str = ""
    count: int = 0
    at: float = 0.0


def api_timestamp() -> str:
    """Return the time in the format of API objects."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """Writes events in the name of one component."""

    def __init__(
        self,
        cluster: Cluster,
        component: str,
        *,
        instance: str = "",
        now: Callable[[], str] = api_timestamp,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`now` is the time of day as text, `clock` is monotonic."""
        self._cluster = cluster
        self._component = component
        self._instance = instance
        self._now = now
        self._clock = clock or asyncio.get_running_loop().time
        self._written: OrderedDict[str, _Written] = OrderedDict()

    async def record(
        self, about: object, reason: str, message: str, *, warning: bool = False, replaces: bool = False
    ) -> bool:
        """Write an event about an object, typed or plain; report whether that succeeded.

        A repetition of an event is counted. If it `replaces`, an object has one event for a reason, with the latest message.
        """
        resource, meta, message = resource_of(about), metadata(about), message[:_LONGEST_MESSAGE]
        kind = resource.kind if resource else ""
        identity = f"{self._component}/{kind}/{meta.uid}/{reason}" + ("" if replaces else f"/{message}")
        name = f"{shortened(meta.name, _LONGEST_NAME)}.{sha256(identity.encode()).hexdigest()[:_HASH_DIGITS]}"
        namespace = meta.namespace or "default"
        written = self._written.setdefault(name, _Written())
        self._written.move_to_end(name)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)
        written.count += 1
        if written.message == message and self._clock() - written.at < WRITE_INTERVAL:
            return True
        written.message, written.at = message, self._clock()
        involved = {
            "apiVersion": resource.api_version if resource else "",
            "kind": kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        latest = {"message": message, "lastTimestamp": self._now()}
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {name: value for name, value in involved.items() if value},
            "reason": reason,
            "type": "Warning" if warning else "Normal",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": self._now(),
            "count": 1,
            **latest,
        }
        try:
            if written.count == 1:
                with suppress(AlreadyExists):  # written by another process, or by this one before it was restarted
                    await self._cluster.create(EVENTS, event, namespace)
                    return True
            try:
                await self._cluster.patch(EVENTS, name, Merge({**latest, "count": written.count}), namespace)
            except NotFound:
                written.count = 1
                await self._cluster.create(EVENTS, event, namespace)
        except ApiError as error:
            logger.warning("event %s about %s %s was not written: %s", reason, kind, meta.name, error)
            self._written.pop(name, None)
            return False
        return True
