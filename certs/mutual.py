"""A TLS context from files that another program maintains, such as a mounted Secret. With a client CA it requires client certificates.

The other program replaces the files one after the other. While certificate and key do not match, the last matching pair stays in use. A
change of the files creates a new context, because a CA cannot be removed from a context.
"""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from certs import authority, reload
from certs.authority import Pair


class UnusableFile(Exception):  # noqa: N818  names the problem
    """A TLS file cannot be read or used; the message says which and why."""


class Files(NamedTuple):
    """The paths of the serving certificate, its key, and the CA of client certificates: "" if clients need no certificate."""

    certificate: str
    key: str
    client_ca: str


class Content(NamedTuple):
    pair: Pair
    client_ca: bytes


class Mutual:
    """A TLS context (`context`) that `reload` replaces after its files have changed."""

    def __init__(self, files: Files) -> None:
        """Read the files. Raises UnusableFile."""
        self._files = files
        self._content = read(files)
        self.context = context_of(self._content, files)
        self.problem = ""

    def reload(self) -> bool:
        """Read the files; report whether there is a new context. If a file is unusable, set `problem` and keep the context."""
        try:
            content = read(self._files)
            changed = content != self._content
            if changed:
                self.context = context_of(content, self._files)
                self._content = content
        except UnusableFile as error:
            self.problem = str(error)
            return False
        self.problem = ""
        return changed

    def days(self, now: dt.datetime) -> float:
        """Return the days until the serving certificate expires."""
        return (authority.span(self._content.pair.certificate).end - now) / dt.timedelta(days=1)


def read(files: Files) -> Content:
    """Read the files, and check that certificate and key belong together. Raises UnusableFile."""
    pair = Pair(_bytes(files.certificate), _bytes(files.key))
    client_ca = _bytes(files.client_ca) if files.client_ca else b""
    try:
        authority.span(pair.certificate)
    except ValueError:
        raise UnusableFile(f"{files.certificate} contains no PEM certificate") from None
    try:
        belongs = authority.matches(pair)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableFile(f"{files.key} contains no PEM private key that is readable without a password") from None
    if not belongs:
        raise UnusableFile(f"{files.key} is not the key of {files.certificate}")
    return Content(pair, client_ca)


def context_of(content: Content, files: Files) -> ssl.SSLContext:
    """Return a context for serving; with a client CA it requires client certificates. Raises UnusableFile."""
    new_context = reload.context()
    try:
        reload.load(new_context, content.pair)
    except ssl.SSLError as error:
        raise UnusableFile(f"{files.certificate} cannot be served: {error.reason or error}") from None
    if not files.client_ca:
        return new_context
    new_context.verify_mode = ssl.CERT_REQUIRED
    # A bundle may have any text between its certificates, such as names in any script.
    bundle = content.client_ca.decode("ascii", "ignore")
    try:
        new_context.load_verify_locations(cadata=bundle)
    except (ssl.SSLError, ValueError):
        raise UnusableFile(f"{files.client_ca} contains no PEM certificate of a CA") from None
    return new_context


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None
