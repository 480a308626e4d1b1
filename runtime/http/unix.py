"""Unix sockets: whether somebody listens behind a path. A process that was killed leaves its path behind."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def listens(path: Path) -> bool:
    """Say whether somebody's socket it is. Who has no room for another caller listens, and who stands still does, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True
