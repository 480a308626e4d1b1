"""Events for people: what `kubectl describe` shows below an object (client-go tools/record).

The same thing said again about the same object raises the count of the event that is there, and not more often than
every few seconds; what is not written at once is counted and written with the next. An event that cannot be written is
logged and forgotten: nothing may depend on it.

What is so at the moment is kept in one event an object: its name is made of what it is about, its text is replaced, and a
process that starts anew finds it again.
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
from cluster.resources import EVENTS, metadata
from cluster.resources import of as resource_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster

logger = logging.getLogger("drawbridge.events")
REMEMBERED = 4096
# Writes of one event are at least this far apart.
SPACING = 5.0
# An event that was not repeated for so long is over; the API server forgets events after an hour.
FORGOTTEN = 600.0
_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 200
_DIGITS = 16


class Said(msgspec.Struct, frozen=True):
    """What is said about which object: its identity among events."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    type: str


class _Known(msgspec.Struct):
    """An event we wrote: its name, how often it happened, and when we last wrote so."""

    name: str
    namespace: str
    count: int
    written: float


def now_of_the_wall() -> str:
    """Say what time it is, as objects have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """Tells people, in the name of one component."""

    def __init__(
        self,
        cluster: Cluster,
        component: str,
        *,
        instance: str = "",
        now: Callable[[], str] = now_of_the_wall,
        clock: Callable[[], float] | None = None,
        suffix: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`now` is the time as text, `clock` in seconds that never go back, `suffix` makes names unique."""
        self._cluster = cluster
        self._component = component
        self._instance = instance
        self._now = now
        self._clock = clock or asyncio.get_running_loop().time
        self._suffix = suffix
        self._known: OrderedDict[Said, _Known] = OrderedDict()

    async def record(self, about: object, reason: str, message: str, *, warning: bool = False) -> None:
        """Say something about an object, typed or plain."""
        type_ = "Warning" if warning else "Normal"
        said = _statement(about, reason, message[:_LONGEST_MESSAGE], type_)
        known = self._known.get(said)
        forgotten = known is not None and self._clock() - known.written > FORGOTTEN
        try:
            if known is None or forgotten:
                await self._create(said)
            else:
                known.count += 1
                self._known.move_to_end(said)
                if self._clock() - known.written < SPACING:
                    return
                known.written = self._clock()
                patch = Merge({"count": known.count, "lastTimestamp": self._now()})
                try:
                    await self._cluster.patch(EVENTS, known.name, patch, known.namespace)
                except NotFound:
                    await self._create(said)
        except ApiError as error:
            logger.warning("event %s about %s %s was not written: %s", reason, said.kind, said.name, error)

    async def keep(self, about: object, reason: str, message: str, *, warning: bool = False) -> bool:
        """Say what is so about an object now, in place of what was kept about it for that reason before; answer whether it was written."""
        type_ = "Warning" if warning else "Normal"
        said = _statement(about, reason, message[:_LONGEST_MESSAGE], type_)
        namespace = said.namespace or "default"
        about_it = f"{self._component}/{said.kind}/{said.uid}/{said.reason}"
        name = f"{said.name[:_LONGEST_NAME]}.{sha256(about_it.encode()).hexdigest()[:_DIGITS]}"
        patch = Merge({"message": said.message, "lastTimestamp": self._now()})
        try:
            try:
                await self._cluster.patch(EVENTS, name, patch, namespace)
            except NotFound:
                try:
                    await self._make(said, name, namespace)
                except AlreadyExists:  # another process of this name has made it meanwhile
                    await self._cluster.patch(EVENTS, name, patch, namespace)
        except ApiError as error:
            logger.warning("event %s about %s %s was not written: %s", reason, said.kind, said.name, error)
            return False
        return True

    async def _create(self, said: Said) -> None:
        namespace = said.namespace or "default"
        name = f"{said.name[:_LONGEST_NAME]}.{self._suffix()}"
        known = _Known(name, namespace, 1, self._clock())
        # Known before it is there, for a call that says the same meanwhile.
        self._known[said] = known
        self._known.move_to_end(said)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        try:
            await self._make(said, name, namespace)
        except BaseException:
            if self._known.get(said) is known:
                del self._known[said]
            raise

    async def _make(self, said: Said, name: str, namespace: str) -> None:
        now = self._now()
        involved = {
            "apiVersion": said.api_version,
            "kind": said.kind,
            "namespace": said.namespace,
            "name": said.name,
            "uid": said.uid,
        }
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {name: value for name, value in involved.items() if value},
            "reason": said.reason,
            "message": said.message,
            "type": said.type,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._cluster.create(EVENTS, body, namespace)


def _statement(about: object, reason: str, message: str, type_: str) -> Said:
    resource = resource_of(about)
    meta = metadata(about)
    return Said(
        api_version=resource.api_version if resource else "",
        kind=resource.kind if resource else "",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        reason=reason,
        message=message,
        type=type_,
    )
