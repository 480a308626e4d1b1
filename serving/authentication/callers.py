"""Decides which callers get an answer: all that can connect, or only those with a client certificate or a token.

An API server sends such credentials if its admission configuration names a kubeconfig for this webhook (docs/install.md). If they are required,
no other caller gets a review answered or anything signed. The readiness probe needs none, because kubelets send no credentials.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from serving.flag import Flag

if TYPE_CHECKING:
    from serving.http import Head

logger = logging.getLogger("drawbridge.listener")
RELOAD_SECONDS = 10.0  # between two reads of the token file, whose content can change


class Credentials(NamedTuple):
    """The credentials that callers need; none by default."""

    client_ca: str = ""  # a file of CA certificates
    client_names: tuple[str, ...] = ()  # the accepted common names; () accepts any name
    token_file: str = ""


def client_ca_flag(certified: str) -> Flag:
    return Flag(
        f"Answer {certified} only to callers with a certificate of this CA; reloaded when the file changes.", "FILE"
    )


def client_names_flag() -> Flag:
    return Flag("With --client-ca: only callers with this common name. May be repeated.", "NAME", name="client-name")


def token_file_flag(guarded: str) -> Flag:
    return Flag(f"Answer {guarded} only to callers that show this bearer token.", "FILE")


class Callers:
    def __init__(self, credentials: Credentials, *, every: float = RELOAD_SECONDS) -> None:
        """Read the token file; it is read again when it is needed after `every` seconds. Raises OSError if it cannot be read now."""
        self._credentials = credentials
        self._every = every
        self._token = b""
        self._token_read_at = float("-inf")
        self._failure_logged = False  # whether a failure to read the file was logged
        self._is_required = bool(credentials.client_ca or credentials.token_file)
        if credentials.token_file:
            self._read_token(asyncio.get_running_loop().time())

    def prepare(self, context: ssl.SSLContext) -> None:
        """Request client certificates in handshakes. They are optional: the peer may be a kubelet, or have a token."""
        if self._credentials.client_ca:
            context.load_verify_locations(self._credentials.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL

    def is_allowed(self, head: Head) -> bool:
        if not self._is_required:
            return True
        credentials = self._credentials
        if credentials.client_ca and head.certified:
            return not credentials.client_names or head.name in credentials.client_names
        if not credentials.token_file:
            return False
        now = asyncio.get_running_loop().time()
        if now - self._token_read_at >= self._every:
            try:
                self._read_token(now)
            except OSError as error:
                if not self._failure_logged:
                    logger.warning(
                        "cannot read the token file; the last token stays valid", extra={"problem": str(error)}
                    )
                self._failure_logged = True
            else:
                self._failure_logged = False
        shown = head.bearer.encode(errors="surrogateescape")
        return bool(self._token) and hmac.compare_digest(shown, self._token)

    def _read_token(self, now: float) -> None:
        self._token_read_at = now
        self._token = Path(self._credentials.token_file).read_bytes().strip()
