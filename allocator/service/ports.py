"""The ports of one process: unix sockets and addresses. An address uses TLS if files for it are configured, with a client CA mutual TLS.

The command line accepts an address without TLS only on loopback, because callers can reserve devices, and agents send tokens.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from certs.mutual import Mutual
from serving.http import Address, Listener

if TYPE_CHECKING:
    from allocator.service.app import AllocatorApp
    from allocator.service.metrics import Metrics
    from allocator.service.settings import AllocatorSettings
    from certs.mutual import Files

logger = logging.getLogger("drawbridge.allocator")
_GRACE = 5.0  # seconds for open requests at shutdown; the next leader finishes a commit that takes longer


class Listening(NamedTuple):
    """The addresses of the open ports."""

    plugin: Address | Path | None = None
    api: Address | Path | None = None
    metrics: Address | None = None
    reservations: Address | Path | None = None


class Ports:
    """The listeners of one process, and their certificates, which are reloaded when the files change."""

    def __init__(self, settings: AllocatorSettings, metrics: Metrics) -> None:
        """Raise UnusableFile if the TLS files cannot be used."""
        self._settings = settings
        self._metrics = metrics
        metrics.checks["certificate"] = self.what_is_wrong
        metrics.notes["files of TLS"] = self.note
        configured = (settings.tls, settings.reservations_tls)
        self.certificates = {files: Mutual(files) for files in configured if files}
        self._listeners: list[tuple[Listener, Files | None]] = []
        if settings.tls:
            days = self.certificates[settings.tls].days
            metrics.gauge(
                "drawbridge_allocator_certificate_days",
                "Days until the serving certificate expires.",
                lambda: days(dt.datetime.now(dt.UTC)),
            )

    def open(
        self, where: Address | Path | None, app: AllocatorApp, files: Files | None = None
    ) -> Address | Path | None:
        """Open a port for an app and return its address. A unix socket uses no TLS."""
        if where is None:
            return None
        files = None if isinstance(where, Path) else files
        listener = Listener(app, app.limits, self._metrics.count_closure)
        self._listeners.append((listener, files))
        if isinstance(where, Path):
            listener.open_socket(where)
            return where
        context = self.certificates[files].context if files else None
        return where._replace(port=listener.open(where.host, where.port, context))

    async def follow(self) -> None:
        """Reload the TLS files when they change, until cancelled."""
        while self.certificates:
            await asyncio.sleep(self._settings.look)
            for files, certificate in self.certificates.items():
                before = certificate.problem
                if certificate.reload():
                    days = round(certificate.days(dt.datetime.now(dt.UTC)))
                    logger.info("TLS certificate reloaded", extra={"days": days})
                    for listener, listener_files in self._listeners:
                        if listener_files == files:
                            listener.renew(certificate.context)
                elif certificate.problem and certificate.problem != before:
                    problem = {"problem": certificate.problem}
                    logger.warning("cannot load the TLS files; the last good ones stay in use", extra=problem)

    def what_is_wrong(self) -> str:
        """Return "expired" if a certificate has expired, else ""."""
        now = dt.datetime.now(dt.UTC)
        return (
            "expired"
            if min((certificate.days(now) for certificate in self.certificates.values()), default=inf) <= 0
            else ""
        )

    def note(self) -> str:
        """Return why TLS files could not be reloaded; "" if they could."""
        return "; ".join(certificate.problem for certificate in self.certificates.values() if certificate.problem)

    async def end(self) -> None:
        """Stop listening; close each connection after its answer, or after `_GRACE` seconds."""
        await asyncio.gather(*(listener.end(_GRACE) for listener, _ in self._listeners))
