"""A TLS context from files that another program keeps: a mounted Secret, cert-manager's. It lets in only who shows a certificate, if it is
said of which authority.

Files change under us, one after the other: what does not go together is not used, and what was good is served meanwhile. When they
have changed there is a new context, because one that trusts an authority cannot be made to forget it.
"""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm

from certs import authority, reload
from certs.authority import Pair


class UnusableFile(Exception):  # noqa: N818  the name of what is wrong
    """A file of ours cannot be read or used; which one, and why."""


class Files(NamedTuple):
    """Paths: what we show, its key, and the authorities whose certificates others have to show, or "" for any caller."""

    certificate: str
    key: str
    client_ca: str


class Content(NamedTuple):
    """What stands in the files."""

    pair: Pair
    client_ca: bytes


class Mutual:
    """One context, made anew when its files have changed."""

    def __init__(self, files: Files) -> None:
        """Raise UnusableFile if there is nothing to begin with."""
        self._files = files
        self._content = read(files)
        self.context = context_of(self._content, files)
        self.problem = ""

    def look(self) -> bool:
        """Look at the files; say whether there is a new context. What cannot be used is a problem, and changes nothing."""
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
        """Days until what we show expires."""
        return (authority.span(self._content.pair.certificate).end - now) / dt.timedelta(days=1)


def read(files: Files) -> Content:
    """Read the files, and see that certificate and key belong together. Raises UnusableFile."""
    pair = Pair(_bytes(files.certificate), _bytes(files.key))
    client_ca = _bytes(files.client_ca) if files.client_ca else b""
    try:
        authority.span(pair.certificate)
    except ValueError:
        raise UnusableFile(f"{files.certificate} holds no certificate in PEM") from None
    try:
        belongs = authority.matches(pair)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableFile(f"{files.key} holds no private key in PEM that can be read without a password") from None
    if not belongs:
        raise UnusableFile(f"{files.key} is not the key of {files.certificate}")
    return Content(pair, client_ca)


def context_of(content: Content, files: Files) -> ssl.SSLContext:
    """Make a context that shows a certificate, and demands one where an authority is named. Raises UnusableFile."""
    made = reload.context()
    try:
        reload.load(made, content.pair)
    except ssl.SSLError as error:
        raise UnusableFile(f"{files.certificate} cannot be served: {error.reason or error}") from None
    if not files.client_ca:
        return made
    made.verify_mode = ssl.CERT_REQUIRED
    # Between certificates anything may stand, whose names in any script for one.
    bundle = content.client_ca.decode("ascii", "ignore")
    try:
        made.load_verify_locations(cadata=bundle)
    except (ssl.SSLError, ValueError):
        raise UnusableFile(f"{files.client_ca} holds no certificate of an authority in PEM") from None
    return made


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None
