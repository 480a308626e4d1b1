"""Where a port listens, and what its clients may use."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


class Address(NamedTuple):
    """Where to listen. Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Limits(NamedTuple):
    """Bounds for one port: sizes in bytes, numbers of connections, and time limits in seconds."""

    # etcd stores objects of at most 1.5 MiB, and an update carries two.
    body: int = 3 * MIB
    # The announced lengths of all bodies above `small_body` that are being received or wait for an answer.
    bytes: int = 64 * MIB
    small_body: int = 64 * 1024
    connections: int = 1024
    # Connections of one address. An API server opens one for each review in flight, and several can share an address.
    peer: int = 320
    handshake: float = 5.0
    # From a connection's start to its first request. An API server may open a connection, use another that became free, and return to this one.
    quiet: float = 15.0
    # From the first byte of a request to its last one. It is below the 3 s of the webhook configuration.
    deadline: float = 2.5
    # Between two requests. It is longer than the API server keeps an idle connection, so that a review is never sent on one that is being closed.
    idle: float = 180.0
    # For a peer to read an answer.
    flush: float = 5.0
    cancels_on_close: bool = False  # whether work on an answer ends when its peer disconnects


def listens(path: Path) -> bool:
    """Report whether a process listens on a unix socket, even if it is stopped or its backlog is full."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
