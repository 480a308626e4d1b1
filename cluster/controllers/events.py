"""Events, which `kubectl describe` shows below an object (client-go tools/record).

`record` raises the count of an event that is repeated. The count is written at most once every few seconds, and then includes all repetitions
since the last write. An event that cannot be written is logged and dropped: nothing may depend on events.

`keep` maintains one event for each object and reason, and replaces its message. The event's name is derived from the object and the reason, so
that a restarted process finds the event again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
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
MAX_REMEMBERED = 4096  # the most events whose count is remembered
WRITE_INTERVAL = 5.0  # seconds between two writes of an event, at least
# Seconds in which a repetition counts; later it is a new event. The API server deletes events after an hour.
REPEAT_WITHIN = 600.0
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 200
_HASH_DIGITS = 16


class EventKey(msgspec.Struct, frozen=True):
    """An event's object and content, which identify its repetitions."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    type: str


class _Known(msgspec.Struct):
    """An event that was written, its count, and when it was last written."""

    name: str
    namespace: str
    count: int
    written: float


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
        suffix: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`now` is the time of day as text, `clock` is monotonic, `suffix` makes names unique."""
        self._cluster = cluster
        self._component = component
        self._instance = instance
        self._now = now
        self._clock = clock or asyncio.get_running_loop().time
        self._suffix = suffix
        self._known: OrderedDict[EventKey, _Known] = OrderedDict()

    async def record(self, about: object, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about an object, typed or plain."""
        event = _key(about, reason, message, warning=warning)
        known = self._known.get(event)
        try:
            if known is None or self._clock() - known.written > REPEAT_WITHIN:
                await self._create(event)
            else:
                known.count += 1
                self._known.move_to_end(event)
                if self._clock() - known.written < WRITE_INTERVAL:
                    return
                known.written = self._clock()
                patch = Merge({"count": known.count, "lastTimestamp": self._now()})
                try:
                    await self._cluster.patch(EVENTS, known.name, patch, known.namespace)
                except NotFound:
                    await self._create(event)
        except ApiError as error:
            logger.warning("event %s about %s %s was not written: %s", reason, event.kind, event.name, error)

    async def keep(self, about: object, reason: str, message: str, *, warning: bool = False) -> bool:
        """Write the one event of an object and reason, replacing its message; report whether that succeeded."""
        event = _key(about, reason, message, warning=warning)
        namespace = event.namespace or "default"
        identity = f"{self._component}/{event.kind}/{event.uid}/{event.reason}"
        name = f"{shortened(event.name, _LONGEST_NAME)}.{sha256(identity.encode()).hexdigest()[:_HASH_DIGITS]}"
        patch = Merge({"message": event.message, "lastTimestamp": self._now()})
        try:
            try:
                await self._cluster.patch(EVENTS, name, patch, namespace)
            except NotFound:
                try:
                    await self._post(event, name, namespace)
                except AlreadyExists:  # another process of this component was faster
                    await self._cluster.patch(EVENTS, name, patch, namespace)
        except ApiError as error:
            logger.warning("event %s about %s %s was not written: %s", reason, event.kind, event.name, error)
            return False
        return True

    async def _create(self, event: EventKey) -> None:
        namespace = event.namespace or "default"
        name = f"{shortened(event.name, _LONGEST_NAME)}.{self._suffix()}"
        known = _Known(name, namespace, 1, self._clock())
        # Remember the event before it is written, so that repetitions meanwhile are counted.
        self._known[event] = known
        self._known.move_to_end(event)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        try:
            await self._post(event, name, namespace)
        except BaseException:
            if self._known.get(event) is known:
                del self._known[event]
            raise

    async def _post(self, event: EventKey, name: str, namespace: str) -> None:
        now = self._now()
        involved = {
            "apiVersion": event.api_version,
            "kind": event.kind,
            "namespace": event.namespace,
            "name": event.name,
            "uid": event.uid,
        }
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {name: value for name, value in involved.items() if value},
            "reason": event.reason,
            "message": event.message,
            "type": event.type,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._cluster.create(EVENTS, body, namespace)


def _key(about: object, reason: str, message: str, *, warning: bool) -> EventKey:
    resource = resource_of(about)
    meta = metadata(about)
    return EventKey(
        api_version=resource.api_version if resource else "",
        kind=resource.kind if resource else "",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        type="Warning" if warning else "Normal",
    )
