"""What is said over a connection: what a request says before its body, and what it is answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Head(NamedTuple):
    """What a request says before its body."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int
    # The peer has shown a certificate that the configured authority signed, with this common name.
    certified: bool = False
    name: str = ""
    # The address that it comes from.
    peer: str = ""

    @property
    def bearer(self) -> str:
        """The token that is shown; "" if none is."""
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


class Reply(NamedTuple):
    """What a request is answered with."""

    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


def text(status: int, message: str, *headers: tuple[str, str], close: bool = False) -> Reply:
    """Answer in words."""
    return Reply(status, message.encode(), headers=headers, close=close)
