"""The head of a request, and the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping


class Head(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    length: int
    certified: bool = False  # whether the peer has a certificate signed by the configured CA
    name: str = ""  # the certificate's common name
    peer: str = ""  # the address

    @property
    def bearer(self) -> str:
        """The bearer token; "" without one."""
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""


def count_members(body: bytes) -> int:
    """Return an upper bound for the members and elements of a JSON text, without decoding it: that takes up to a microsecond for each."""
    return sum(map(body.count, (b",", b"{", b"[")))


class Reply(NamedTuple):
    status: int
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False
    # After the body, each part is sent as soon as it exists; the connection ends after the last part.
    parts: AsyncGenerator[bytes, None] | None = None


def text(status: int, message: str, *headers: tuple[str, str], close: bool = False) -> Reply:
    return Reply(status, message.encode(), headers=headers, close=close)
