"""Which callers may ask: all that can connect, or only those with a certificate or a token.

An API server shows one if its admission configuration names a kubeconfig for this webhook (docs/install.md). Then no other
caller gets an answer to a review, and so no seal on anything. Readiness stays open: kubelets show nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from runtime.flag import Flag

if TYPE_CHECKING:
    from runtime.http import Head

logger = logging.getLogger("drawbridge.listener")
# A token file is mounted, and changes under us.
LOOK_SECONDS = 10.0


class Credentials(NamedTuple):
    """What a caller must show; nothing at all by default."""

    # A file of certificates. Callers with a certificate of that authority may ask, or only these common names.
    client_ca: str = ""
    client_names: tuple[str, ...] = ()
    token_file: str = ""


def client_ca_flag(certified: str) -> Flag:
    """The option of a server that answers some calls only to callers with a certificate."""
    return Flag(
        f"Answer {certified} only to callers with a certificate of this authority; followed while it changes.", "FILE"
    )


def client_names_flag() -> Flag:
    """The option that says which of them."""
    return Flag("With --client-ca: only callers with this common name. May be repeated.", "NAME", name="client-name")


def token_file_flag(guarded: str) -> Flag:
    """The option of a server that answers some calls only to callers with a token."""
    return Flag(f"Answer {guarded} only to callers that show this bearer token.", "FILE")


class Callers:
    """Knows which callers may ask."""

    def __init__(self, credentials: Credentials, *, every: float = LOOK_SECONDS) -> None:
        """Look at the token's file again after so many seconds. Raise OSError where it cannot be read now."""
        self._credentials = credentials
        self._every = every
        self._token = b""
        self._looked = float("-inf")
        self._told = False  # that the file cannot be read
        self._is_shown = bool(credentials.client_ca or credentials.token_file)
        if credentials.token_file:
            self._look(asyncio.get_running_loop().time())

    def prepare(self, context: ssl.SSLContext) -> None:
        """Have peers asked for a certificate. One without goes on: it may be a kubelet, or have a token."""
        if self._credentials.client_ca:
            context.load_verify_locations(self._credentials.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL

    def may_ask(self, head: Head) -> bool:
        """Whether the sender of this request may have an answer to a review."""
        if not self._is_shown:
            return True
        credentials = self._credentials
        if credentials.client_ca and head.certified:
            return not credentials.client_names or head.name in credentials.client_names
        if not credentials.token_file:
            return False
        now = asyncio.get_running_loop().time()
        if now - self._looked >= self._every:
            # While the file cannot be read, its last content holds.
            try:
                self._look(now)
            except OSError as error:
                if not self._told:
                    logger.warning(
                        "the token file cannot be read; its last content holds", extra={"problem": str(error)}
                    )
                self._told = True
            else:
                self._told = False
        shown = head.bearer.encode(errors="surrogateescape")
        return bool(self._token) and hmac.compare_digest(shown, self._token)

    def _look(self, now: float) -> None:
        self._looked = now
        self._token = Path(self._credentials.token_file).read_bytes().strip()
