"""Ports for people: no page of another origin may use them, and without a login no other host name. The rim."""

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
async def refuse_strangers(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer those who name this machine by its address or as localhost: a browser may be led here by another name, or another's page."""
    origin = request.headers.get("Origin")
    if not _is_ours(request.host):
        return refusal(
            403, "call this port by its address or as localhost: another host name may belong to another machine"
        )
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        return refusal(403, "a page of another origin may not use this port")
    return await handler(request)


@web.middleware
async def refuse_other_origins(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer under any name, for callers say who they are, but no page of another site."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return refusal(403, "a page of another origin may not use this port")
    return await handler(request)


def _is_ours(host: str) -> bool:
    """Say whether a Host header names this machine: no name but localhost does, whatever it resolves to."""
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
