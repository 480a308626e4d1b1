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
# An agent of each node asks twice a minute, over a connection of its own.
PROMISE_LIMITS = Limits(body=0, connections=512, peer=512, deadline=5.0, idle=15.0)
LOOK_SECONDS = 10.0
_GRACE = 5.0  # for what is in flight at the end: a commit under way is finished by the next leader if need be


class Listening(NamedTuple):
    """Where the ports are, once they are open."""

    plugin: Address | Path | None
    extender: Address | Path | None
    api: Address | Path | None
    metrics: Address | None
    quota: Address | None = None
    promises: Address | None = None


class Ports:
    """The doors of one process."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raise UnusableFile if the files of TLS cannot be used."""
        self._settings = settings
        self._metrics = metrics
        self._doors: list[Door] = []  # those that speak TLS if anybody does
        self._others: list[Door] = []
        self._mutual = Mutual(settings.tls) if settings.tls else None
        self._reviewed = Mutual(settings.quota_tls) if settings.quota_tls else None  # what API servers are shown
        self._quota_doors: list[Door] = []
        self._agreed = Mutual(settings.promises_tls) if settings.promises_tls else None  # what audit agents are shown
        self._promise_doors: list[Door] = []
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

    def open_quota(self, routes: Routes) -> Address | None:
        """Open the door that API servers ask at, and say where it is. They show nothing, unless it is said of which authority."""
        where = self._settings.quota
        if where is None:
            return None
        door = Door(App(routes), LIMITS, self._metrics.count_closure)
        self._quota_doors.append(door)
        context = self._reviewed.context if self._reviewed else None
        return where._replace(port=door.open(where.host, where.port, context))

    def open_promises(self, routes: Routes) -> Address | None:
        """Open the door that audit agents of nodes ask at, and say where it is. Whose their tokens are is looked at with each call."""
        where = self._settings.promises
        if where is None:
            return None
        door = Door(App(routes), PROMISE_LIMITS, self._metrics.count_closure)
        self._promise_doors.append(door)
        context = self._agreed.context if self._agreed else None
        return where._replace(port=door.open(where.host, where.port, context))

    def open_metrics(self) -> Address | None:
        """Open the port for metrics and probes, and say where it is."""
        where = self._settings.metrics
        if where is None:
            return None
        door = self._metrics.door()
        self._others.append(door)
        return where._replace(port=door.open(where.host, where.port))

    async def follow(self) -> None:
        """Look at the files of TLS for ever."""
        shown = (
            (self._mutual, self._doors),
            (self._reviewed, self._quota_doors),
            (self._agreed, self._promise_doors),
        )
        while any(mutual for mutual, _ in shown):
            await asyncio.sleep(self._settings.look)
            for mutual, doors in shown:
                if mutual:
                    self._look(mutual, doors)

    def _look(self, mutual: Mutual, doors: list[Door]) -> None:
        before = mutual.problem
        if mutual.look():
            now = dt.datetime.now(dt.UTC)
            days = mutual.days(now)
            logger.info("serving by new files of TLS", extra={"days": round(days)})
            for door in doors:
                door.renew(mutual.context)
        elif mutual.problem and mutual.problem != before:
            problem = {"problem": mutual.problem}
            logger.warning("the files of TLS cannot be used; the last good ones are", extra=problem)

    def days(self) -> float:
        """Days until what we show expires."""
        return self._mutual.days(dt.datetime.now(dt.UTC)) if self._mutual else 0.0

    def what_is_wrong(self) -> str:
        """Say why nobody can believe us, or "" if they can."""
        now = dt.datetime.now(dt.UTC)
        return "expired" if any(mutual.days(now) <= 0 for mutual in self._shown() if mutual) else ""

    def note(self) -> str:
        """Say what is worth knowing of the files, or ""."""
        return "; ".join(mutual.problem for mutual in self._shown() if mutual and mutual.problem)

    def _shown(self) -> tuple[Mutual | None, ...]:
        return self._mutual, self._reviewed, self._agreed

    async def end(self) -> None:
        """Let go of everybody."""
        await asyncio.gather(
            *(door.end(_GRACE) for door in (*self._doors, *self._quota_doors, *self._promise_doors, *self._others))
        )
