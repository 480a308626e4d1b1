"""The ports of one process: unix sockets, and addresses that speak mutual TLS where there are files for it.

In the clear an address has to be loopback's: whoever reaches these ports can have devices held. Who gives addresses sees to that.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allocator.service.app import App
from certs.mutual import Mutual
from runtime.http import Address, Limits, Listener

if TYPE_CHECKING:
    from allocator.service.app import Routes
    from allocator.service.metrics import Metrics
    from allocator.service.settings import Settings
    from certs.mutual import Files

logger = logging.getLogger("drawbridge.allocator")
# An agent of each node asks twice a minute, over a connection of its own.
PROMISE_LIMITS = Limits(body=0, connections=512, peer=512, deadline=5.0, idle=15.0)
_GRACE = 5.0  # for what is in flight at the end: a commit under way is finished by the next leader if need be


class Listening(NamedTuple):
    """Where the ports are, once they are open."""

    plugin: Address | Path | None
    extender: Address | Path | None
    api: Address | Path | None
    metrics: Address | None
    quota: Address | None = None
    promises: Address | None = None


class Entrance:
    """The doors behind one certificate, which is followed in its files; or in the clear without any."""

    def __init__(self, files: Files | None = None) -> None:
        """Raise UnusableFile if the files cannot be used."""
        self.shown = Mutual(files) if files else None
        self.doors: list[Listener] = []

    def open(self, door: Listener, where: Address) -> Address:
        """Open a door, and say where it is."""
        self.doors.append(door)
        context = self.shown.context if self.shown else None
        return where._replace(port=door.open(where.host, where.port, context))

    def look(self) -> None:
        """Look whether the files have changed."""
        shown = self.shown
        if shown is None:
            return
        before = shown.problem
        if shown.look():
            logger.info("TLS certificate reloaded", extra={"days": round(self.days())})
            for door in self.doors:
                door.renew(shown.context)
        elif shown.problem and shown.problem != before:
            problem = {"problem": shown.problem}
            logger.warning("cannot load the TLS files; the last good ones stay in use", extra=problem)

    def days(self) -> float:
        """Days until what is shown expires."""
        now = dt.datetime.now(dt.UTC)
        return self.shown.days(now) if self.shown else inf


class Ports:
    """The doors of one process."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raise UnusableFile if the files of TLS cannot be used."""
        self._settings = settings
        self._metrics = metrics
        self.of_schedulers = Entrance(settings.tls)
        self.of_servers = Entrance(settings.quota_tls)
        self.of_agents = Entrance(settings.promises_tls)
        self._in_the_clear = Entrance()  # sockets in the file system, and metrics
        self._entrances = (self.of_schedulers, self.of_servers, self.of_agents, self._in_the_clear)
        if settings.tls:
            metrics.gauge(
                "drawbridge_allocator_certificate_days",
                "Days until the serving certificate expires.",
                self.of_schedulers.days,
            )

    def open(self, where: Address | Path | None, routes: Routes, *, asks_token: bool = True) -> Address | Path | None:
        """Open a door for one group of calls, and say where it is."""
        if where is None:
            return None
        settings = self._settings
        token_file = settings.token_file if asks_token else ""
        app = App(routes, token_file=token_file, names=settings.client_names)
        door = self._door(app)
        if isinstance(where, Path):
            self._in_the_clear.doors.append(door)
            door.open_socket(where)
            return where
        return self.of_schedulers.open(door, where)

    def open_quota(self, routes: Routes) -> Address | None:
        """Open the door that API servers ask at, and say where it is. They show nothing, unless it is said of which authority."""
        where = self._settings.quota
        if where is None:
            return None
        door = self._door(App(routes))
        return self.of_servers.open(door, where)

    def open_promises(self, routes: Routes) -> Address | None:
        """Open the door that audit agents of nodes ask at, and say where it is. Whose their tokens are is looked at with each call."""
        where = self._settings.promises
        if where is None:
            return None
        door = self._door(App(routes, limits=PROMISE_LIMITS))
        return self.of_agents.open(door, where)

    def _door(self, app: App) -> Listener:
        return Listener(app, app.limits, self._metrics.count_closure)

    def open_metrics(self) -> Address | None:
        """Open the port for metrics and probes, and say where it is."""
        where = self._settings.metrics
        if where is None:
            return None
        door = self._metrics.door()
        return self._in_the_clear.open(door, where)

    async def follow(self) -> None:
        """Look at the files of TLS for ever."""
        while any(one.shown for one in self._entrances):
            await asyncio.sleep(self._settings.look)
            for one in self._entrances:
                one.look()

    def what_is_wrong(self) -> str:
        """Say why nobody can believe us, or "" if they can."""
        return "expired" if any(one.days() <= 0 for one in self._entrances) else ""

    def note(self) -> str:
        """Say what is worth knowing of the files, or ""."""
        return "; ".join(one.shown.problem for one in self._entrances if one.shown and one.shown.problem)

    async def end(self) -> None:
        """Let go of everybody."""
        doors = [door for one in self._entrances for door in one.doors]
        await asyncio.gather(*(door.end(_GRACE) for door in doors))
