"""The rim of admission: TLS and HTTP on one side, bytes to a gate on the other. It decides nothing.

Its one promise is that the API server always gets an answer fast: a decision, or a status that lets its failurePolicy
act. So nothing queues here. Beyond a number of reviews or bytes in flight the answer is 503 at once; a body that comes
slower than the deadline is 408, one larger than any object 413, and a bug of ours 500 with a log line.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from aiohttp import web

from webhook.admission import REFUSED, ReviewError
from webhook.service.log import Decisions

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from webhook.admission import Outcome
    from webhook.service.metrics import Metrics

logger = logging.getLogger("drawbridge.webhook")

MIB = 1 << 20


class Limits(NamedTuple):
    """What one process takes on at a time."""

    # An update carries two objects, and the API server takes requests up to 3 MiB.
    body: int = 7 * MIB
    reviews: int = 128
    bytes: int = 256 * MIB
    # Below the 3 s that the webhook configuration gives us, so that the answer is ours.
    deadline: float = 2.5
    handshake: float = 5.0
    # A refused object is decided on once more after this long: our copy of the cluster is a moment old, and a class may
    # have been applied just before the first pod that names it.
    second_look: float = 0.25
    # Longer than the API server keeps an idle connection, so that it is never we who close one under a review.
    idle: float = 180.0


class Gate(Protocol):
    """Who decides."""

    def mutate(self, body: bytes) -> Outcome:
        """Answer a mutating review."""
        ...

    def validate(self, body: bytes) -> Outcome:
        """Answer a validating review."""
        ...

    def unready(self) -> Mapping[str, str]:
        """Name what keeps us from deciding well: check to reason; an empty reason is fine."""
        ...


class App:
    """The webhook's HTTP side."""

    def __init__(
        self, gate: Gate, metrics: Metrics, limits: Limits | None = None, decisions: Decisions | None = None
    ) -> None:
        self._decisions = decisions or Decisions()
        self._gate = gate
        self._metrics = metrics
        self._limits = limits or Limits()
        self._reviews = 0
        self._bytes = 0
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._server: asyncio.Server | None = None
        self._web: web.Server | None = None
        self._routes: dict[str, Callable[[bytes], Outcome]] = {"/mutate": gate.mutate, "/validate": gate.validate}

    async def start(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen; return the port."""
        # Bodies come as they are: a compressed one could unfold to any size.
        self._web = web.Server(
            self.handle, access_log=None, auto_decompress=False, keepalive_timeout=self._limits.idle, lingering_time=1.0
        )
        self._server = await asyncio.get_running_loop().create_server(
            self._web,
            host,
            port,
            ssl=tls,
            backlog=1024,
            reuse_address=True,
            ssl_handshake_timeout=self._limits.handshake,
            ssl_shutdown_timeout=1.0,
        )
        port_: int = self._server.sockets[0].getsockname()[1]
        return port_

    async def drain(self, *, notice: float, grace: float) -> None:
        """Say unready, serve on for `notice` seconds while others notice, then finish what is in flight.

        From the first moment each answer closes its connection, so that hardly one is idle when the door shuts.
        """
        self._draining = True
        if self._server is None or self._web is None:
            return
        await asyncio.sleep(notice)
        self.close()
        # aiohttp stops reading a connection it shuts, so bodies that are under way come first.
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._idle.wait()
        self._web.pre_shutdown()
        await self._web.shutdown(grace)

    def close(self) -> None:
        """Take no new connection any more."""
        if self._server is not None:
            self._server.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        response = await self._route(request, request.path)
        if self._draining:
            response.force_close()
        return response

    async def _route(self, request: web.BaseRequest, path: str) -> web.Response:
        decide = self._routes.get(path)
        if decide is not None and request.method == "POST":
            return await self._review(request, path, decide)
        if request.method in ("GET", "HEAD"):
            if path == "/livez":
                return _text(200, "ok")
            if path == "/readyz":
                return self._ready()
        if decide is not None or path in ("/livez", "/readyz"):
            allow = "POST" if decide else "GET, HEAD"
            return _text(405, f"{path} takes {allow} only", Allow=allow)
        return _text(404, "there are /mutate, /validate, /livez and /readyz here")

    def _ready(self) -> web.Response:
        checks = dict(self._gate.unready())
        if self._draining:
            checks["serving"] = "shutting down"
        lines = [f"[-]{name}: {reason}" if reason else f"[+]{name} ok" for name, reason in checks.items()]
        return _text(503 if any(checks.values()) else 200, "\n".join(lines) + "\n")

    async def _review(self, request: web.BaseRequest, path: str, decide: Callable[[bytes], Outcome]) -> web.Response:
        length = request.content_length
        expected = self._limits.body if length is None else length
        refused = self._refuse(request, expected)
        if refused is not None:
            self._metrics.refused(path, refused.status)
            return refused
        self._reviews += 1
        self._bytes += expected
        self._idle.clear()
        try:
            return await self._decide(request, path, decide)
        finally:
            self._reviews -= 1
            self._bytes -= expected
            if not self._reviews:
                self._idle.set()

    def _refuse(self, request: web.BaseRequest, expected: int) -> web.Response | None:
        if expected > self._limits.body:
            return _text(413, f"a review of more than {self._limits.body} bytes is none", close=True)
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            return _text(415, "a review is application/json, not compressed", close=True)
        if self._reviews >= self._limits.reviews or self._bytes + expected > self._limits.bytes:
            return _text(503, "too many reviews in flight", close=True, **{"Retry-After": "1"})
        return None

    async def _decide(self, request: web.BaseRequest, path: str, decide: Callable[[bytes], Outcome]) -> web.Response:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._limits.deadline):
                body = await _read(request, self._limits.body)
            outcome = decide(body)
            if outcome.record.outcome == REFUSED and 2 * self._reviews <= self._limits.reviews:
                await asyncio.sleep(self._limits.second_look)
                outcome = decide(body)
        except TimeoutError:
            return self._failed(path, _text(408, "the body did not arrive in time", close=True))
        except ReviewError as error:
            logger.warning("review refused", extra={"path": path, "status": error.status, "problem": str(error)})
            return self._failed(path, _text(error.status, str(error)))
        except Exception:
            # Whatever it is, the API server's failurePolicy decides what it means for the pod, not a broken connection.
            logger.exception("a bug while deciding; please report it", extra={"path": path})
            return self._failed(path, _text(500, "internal error, see the log of drawbridge"))
        seconds = asyncio.get_running_loop().time() - started
        self._metrics.decided(path, outcome.record, seconds)
        self._decisions.write(outcome.record, seconds)
        return web.Response(body=outcome.body, content_type="application/json")

    def _failed(self, path: str, response: web.Response) -> web.Response:
        self._metrics.refused(path, response.status)
        return response


async def _read(request: web.BaseRequest, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await request.content.readany():
        size += len(chunk)
        if size > limit:
            raise ReviewError(413, f"a review of more than {limit} bytes is none")
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _text(status: int, text: str, *, close: bool = False, **headers: str) -> web.Response:
    response = web.Response(status=status, text=text, headers=headers)
    if close:  # the body was not read, so the connection cannot be used again
        response.force_close()
    return response
