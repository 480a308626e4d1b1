"""One connection: aiohttp parses its requests and writes the answers, and this class adds deadlines.

    waits for                      time limit             then
    the end of the TLS handshake   handshake              aborted
    the first byte of a request    quiet, later idle      closed
    the last byte of a request     deadline               aborted
    the answer                     (the handler)          -
    the peer to read the answer    flush                  aborted

The listener aborts a connection whose `due` time has passed (`serving.http.listener`).
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

    from serving.http.limits import Limits

MAX_HEADERS = 64
# aiohttp would log a traceback for each malformed request.
_silent = logging.getLogger("drawbridge.listener.aiohttp")
_silent.disabled = True


class GuardedConnection(web.RequestHandler):
    """A connection, from the time it is accepted."""

    def __init__(self, server: web.Server, limits: Limits, peer: str) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle,
            logger=_silent,
            access_log=None,  # type: ignore[arg-type]
            max_headers=MAX_HEADERS,
            lingering_time=limits.deadline,
            auto_decompress=False,
        )
        self.peer = peer
        self._limits, self._clock = limits, loop.time
        self.due = self._clock() + limits.handshake
        self.is_served = False  # whether the event loop owns its socket
        self.is_made = False  # whether the TLS handshake is done
        self.is_waiting = True  # for the first byte of a request
        self.is_answering = False  # whether its request is complete and not answered yet
        self.is_outdated = False  # whether the listener has a new TLS context
        # Whether the peer showed a client certificate, and the certificate's common name.
        self.certified, self.common_name = False, ""
        self.lost: asyncio.Future[None] = loop.create_future()
        self.wire: asyncio.WriteTransport | None = None  # the socket's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_made = True
        shown: Mapping[str, Any] = transport.get_extra_info("peercert") or {}
        self.certified = bool(shown)
        names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
        self.common_name = str(names[0]) if names else ""
        self.due = self._clock() + self._limits.quiet

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        if data:  # aiohttp also calls this method when it resumes reading
            self.begin_request()
        super().data_received(data)

    def begin_request(self) -> None:
        """Start the deadline for the rest of a request, unless it has started."""
        if self.is_waiting:
            self.is_waiting = False
            self.due = self._clock() + self._limits.deadline

    def begin_writing(self) -> None:
        """Start the deadline for reading the answer."""
        self.due = self._clock() + self._limits.flush

    def wait_for_request(self) -> None:
        """Wait for the next request; aiohttp closes the connection after `Limits.idle`."""
        self.is_waiting, self.is_answering, self.due = True, False, inf

    def close_if_idle(self) -> None:
        if self.is_waiting:
            self.force_close()

    def abort(self) -> None:
        if self.wire is not None:
            self.wire.abort()
