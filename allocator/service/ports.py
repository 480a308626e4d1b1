"""The ports of one process: unix sockets, and addresses that speak mutual TLS where there are files for it.

In the clear an address has to be loopback's: whoever reaches these ports can have devices held. Who gives addresses sees to that.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allocator.service.app import LIMITS, App
from certs.mutual import Mutual
from cluster.serving import Address, Door, Limits

if TYPE_CHECKING:
    from allocator.service.app import Routes
    from allocator.service.metrics import Metrics
    from allocator.service.process import Settings

logger = logging.getLogger("drawbridge.allocator")
METRICS_LIMITS = Limits(body=0, connections=32, peer=16)
LOOK_SECONDS = 10.0
_GRACE = 5.0  # for what is in flight at the end: a commit under way is finished by the next leader if need be


class Listening(NamedTuple):
    """Where the ports are, once they are open."""

    plugin: Address | Path | None
    extender: Address | Path | None
    api: Address | Path | None
    metrics: Address | None


class Ports:
    """The doors of one process."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raise UnusableFile if the files of TLS cannot be used."""
        self._settings = settings
        self._metrics = metrics
        self._doors: list[Door] = []  # those that speak TLS if anybody does
        self._others: list[Door] = []
        self._mutual = Mutual(settings.tls) if settings.tls else None
        if self._mutual:
            metrics.gauge(
                "drawbridge_allocator_certificate_days", "Until what schedulers are shown expires.", self.days
            )

    def open(self, where: Address | Path | None, routes: Routes, *, asks_token: bool = True) -> Address | Path | None:
        """Open a door for one group of calls, and say where it is."""
        if where is None:
            return None
        settings = self._settings
        token_file = settings.token_file if asks_token else ""
        app = App(routes, token_file=token_file, names=settings.client_names)
        door = Door(app, LIMITS, self._metrics.count_closure)
        if isinstance(where, Path):
            self._others.append(door)
            door.open_socket(where)
            return where
        self._doors.append(door)
        context = self._mutual.context if self._mutual else None
        return where._replace(port=door.open(where.host, where.port, context))

    def open_metrics(self) -> Address | None:
        """Open the port for metrics and probes, and say where it is."""
        where = self._settings.metrics
        if where is None:
            return None
        door = Door(self._metrics, METRICS_LIMITS, self._metrics.count_closure)
        self._others.append(door)
        return where._replace(port=door.open(where.host, where.port))

    async def follow(self) -> None:
        """Look at the files of TLS for ever."""
        while self._mutual:
            await asyncio.sleep(self._settings.look)
            self._look(self._mutual)

    def _look(self, mutual: Mutual) -> None:
        before = mutual.problem
        if mutual.look():
            logger.info("serving by new files of TLS", extra={"days": round(self.days())})
            for door in self._doors:
                door.renew(mutual.context)
        elif mutual.problem and mutual.problem != before:
            logger.warning("the files of TLS cannot be used; the last good ones are", extra={"problem": mutual.problem})

    def days(self) -> float:
        """Days until what we show expires."""
        return self._mutual.days(dt.datetime.now(dt.UTC)) if self._mutual else 0.0

    def what_is_wrong(self) -> str:
        """Say why nobody can believe us, or "" if they can."""
        return "expired" if self._mutual and self.days() <= 0 else ""

    def note(self) -> str:
        """Say what is worth knowing of the files, or ""."""
        return self._mutual.problem if self._mutual else ""

    async def end(self) -> None:
        """Let go of everybody."""
        await asyncio.gather(*(door.end(_GRACE) for door in (*self._doors, *self._others)))
