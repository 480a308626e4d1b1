"""A site for browsers: its routes, and the checks that a request has to pass before the function of its route is called.

Pages of other origins must not use the site. Against DNS rebinding, a site without a login also requires that the Host header is an IP address or
localhost: any other host name may belong to another machine.
"""

from __future__ import annotations

import logging
import re
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from serving.http.limits import Address
from serving.http.listener import Listener
from serving.http.messages import Head, Reply, text

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from serving.http.limits import Limits

logger = logging.getLogger("drawbridge.listener")

GRACE = 5.0  # seconds that a closing site waits for incomplete answers
MAX_FIELDS = 64  # fields of a form
FORM = "application/x-www-form-urlencoded"
HTML = "text/html; charset=utf-8"


class HttpRequest(NamedTuple):
    """A request, with the parts of its path that the route names."""

    head: Head
    names: Mapping[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        """The fields after the question mark."""
        return dict(reversed(parse_qsl(_decoded(self.head.query), keep_blank_values=True)))

    def fields(self) -> dict[str, str]:
        """Return the fields of a form. Raises Refused."""
        if self.head.headers.get("Content-Type", "").partition(";")[0].strip().lower() != FORM:
            raise StatusError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        try:
            # Browsers send forms of our pages in UTF-8, whatever character set a request names.
            return dict(parse_qsl(self.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))  # fmt: skip
        except ValueError:
            raise StatusError(HTTPStatus.BAD_REQUEST) from None

    def cookie(self, cookie_name: str) -> str:
        """Return the value of a cookie; "" without one."""
        for part in self.head.headers.get("Cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == cookie_name:
                return value
        return ""


class StatusError(Exception):
    def __init__(self, status: HTTPStatus, *headers: tuple[str, str]) -> None:
        super().__init__(status.phrase)
        self.reply = text(status, f"{status.phrase}\n", *headers)


class Route(NamedTuple):
    """A method and a path, such as /pods/{name}, and the function that answers. {name*} may contain slashes. GET serves HEAD, too."""

    method: str
    path: str
    answer: Callable[[HttpRequest], Awaitable[Reply]]


class Site:
    """Routes, as a `Handler`, and their listener."""

    def __init__(
        self,
        routes: Iterable[Route],
        limits: Limits,
        *,
        any_host: bool = False,
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Add `headers` to every answer. `any_host` accepts every Host header: only for a site whose routes require a login."""
        self._routes = [(_pattern(route.path), route) for route in routes]
        self._limits = limits
        self._any_host = any_host
        self._headers = tuple(headers)

    @asynccontextmanager
    async def open(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Listen, and yield the URL."""
        listener = Listener(self, self._limits, lambda _: None)
        try:
            address = Address(host, listener.open(host, port, tls))
            yield f"http{'s' if tls else ''}://{address}"
        finally:
            await listener.end(GRACE)

    def refuse(self, head: Head) -> Reply | None:
        """Refuse requests for other hosts, of other origins, and with large bodies."""
        host, origin = head.headers.get("Host", ""), head.headers.get("Origin")
        if not (self._any_host or _is_local(host)):
            refused = text(403, "use an IP address or localhost: another host name may belong to another machine\n")
        elif origin is not None and (not host or origin.partition("://")[2] != host):
            refused = text(403, "a page of another origin may not use this port\n")
        elif head.length > self._limits.body:
            refused = text(413, f"the body has {head.length} bytes, at most {self._limits.body} are accepted\n")
        else:
            return None
        return self._with_headers(refused)

    async def _find(self, head: Head, body: bytes) -> Reply:
        method = "GET" if head.method == "HEAD" else head.method
        path = _decoded(head.path)
        matches = [(match, route) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        for match, route in matches:
            if route.method == method:
                return await route.answer(
                    HttpRequest(head, {name: unquote(part) for name, part in match.groupdict().items()}, body)
                )
        if matches:
            allowed = ", ".join(sorted({route.method for _, route in matches}))
            raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", allowed))
        bare_path = path.rstrip("/")
        if bare_path != path and any(pattern.fullmatch(bare_path) for pattern, _ in self._routes):
            raise StatusError(HTTPStatus.PERMANENT_REDIRECT, ("Location", quote(bare_path, safe="/%")))
        raise StatusError(HTTPStatus.NOT_FOUND)

    async def answer(self, head: Head, body: bytes) -> Reply:
        try:
            reply = await self._find(head, body)
        except StatusError as refused:
            reply = refused.reply
        except Exception:
            # The next request must still be answered.
            logger.exception("a bug while answering; please report it", extra={"path": head.path})
            reply = text(500, "internal error, see the log\n")
        return self._with_headers(reply._replace(body=b"", parts=None) if head.method == "HEAD" else reply)

    def _with_headers(self, reply: Reply) -> Reply:
        return reply._replace(headers=(*reply.headers, *self._headers))


def html(page: str, status: int = 200, *headers: tuple[str, str]) -> Reply:
    return Reply(status, page.encode(), HTML, headers)


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+\*?)\}", path)  # texts and names alternate
    for index in range(0, len(parts), 2):
        parts[index] = re.escape(parts[index])
    for index in range(1, len(parts), 2):
        name = parts[index].removesuffix("*")
        parts[index] = f"(?P<{name}>{'[^/]+' if name == parts[index] else '.+'})"
    return re.compile("".join(parts))


def _decoded(raw: str) -> str:
    """Replace surrogates, which cannot be written into a page. The parser makes them from bytes that are not UTF-8."""
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _is_local(host: str) -> bool:
    """Return whether a Host header is an IP address or localhost."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return "@" not in host and (name == "localhost" or bool(ip_address(name)))
    except ValueError:
        return False
