"""Middlewares for HTTP ports that browsers use: refuse other origins, and without a login other host names."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def refusal(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


@web.middleware
async def refuse_other_hosts(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer requests for an IP address or localhost from our own pages, against DNS rebinding and cross-site requests."""
    origin = request.headers.get("Origin")
    if not _is_ours(request.host):
        return refusal(403, "use an IP address or localhost: another host name may belong to another machine")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        return refusal(403, "a page of another origin may not use this port")
    return await handler(request)


@web.middleware
async def refuse_other_origins(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer for any host name, since callers log in, but not to pages of another origin."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return refusal(403, "a page of another origin may not use this port")
    return await handler(request)


def _is_ours(host: str) -> bool:
    """Return whether a Host header is an IP address or localhost; other names may resolve here, too."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
