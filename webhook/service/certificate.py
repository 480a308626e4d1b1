"""Keeps the serving certificate and the signing keys of a process up to date.

| process | certificate | signing keys |
|---|---|---|
| authority | from the shared Secrets, which it also renews and rotates | from the shared Secrets |
| webhook | from the shared Secrets, or from files of another program | from the shared Secrets |
| controllers | none, because they serve no requests | from the shared Secrets |
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from certs import authority, reload
from certs.authority import Pair
from cluster.errors import ClusterError, NotFound
from webhook.service.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from certs.change_watch import ChangeWatch
    from certs.rotation import Span
    from certs.store import SecretStore

logger = logging.getLogger("drawbridge.certificate")
INCOMPLETE = "the Secret is not complete yet; is drawbridge's authority running?"


class Origin(Protocol):
    """A source of the certificate and the signing keys."""

    async def load(self) -> tuple[Pair | None, tuple[bytes, ...]]:
        """Return both. Raises ClusterError or OSError while they cannot be read."""
        ...


class SharedSecrets:
    """The Secrets that all replicas share. With `keep`, `load` also creates, renews and rotates their content."""

    def __init__(self, store: SecretStore, *, keep: bool) -> None:
        self._store = store
        self._keep = keep

    async def load(self) -> tuple[Pair | None, tuple[bytes, ...]]:
        """See Origin."""
        if self._keep:
            material = await self._store.sync()
        else:
            material = await self._store.read()
        if material.leaf is None or not material.signing_keys.keys:
            raise NotFound(INCOMPLETE)
        return material.leaf, material.signing_keys.keys


class SigningKeySource:
    """The signing keys without a certificate, for the controllers."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    async def load(self) -> tuple[Pair | None, tuple[bytes, ...]]:
        """See Origin."""
        keys = (await self._store.signing_keys()).keys
        if not keys:
            raise NotFound(INCOMPLETE)
        return None, keys


class FileCertificate:
    """A certificate in files that another program renews, such as cert-manager; `others` has the signing keys."""

    def __init__(self, certificate: str, key: str, others: Origin) -> None:
        self._certificate = certificate
        self._key = key
        self._others = others

    async def load(self) -> tuple[Pair | None, tuple[bytes, ...]]:
        """See Origin."""
        _, keys = await self._others.load()
        return Pair(Path(self._certificate).read_bytes(), Path(self._key).read_bytes()), keys  # noqa: ASYNC240  two small files


class Certificate:
    """A TLS context that always has the newest certificate."""

    def __init__(
        self,
        origin: Origin,
        changes: ChangeWatch,
        learned: Callable[[tuple[bytes, ...]], None],
        pace: Pace = Pace(),  # noqa: B008  a value
    ) -> None:
        """`learned` is called with the signing keys whenever they change; `changes` wakes `run` when a Secret changes."""
        self.context = reload.context()
        self._origin = origin
        self._changes = changes
        self._pace = pace
        self._learned = learned
        self._pair: Pair | None = None
        self._keys: tuple[bytes, ...] = ()
        self._problem = "no certificate yet"
        self._first = asyncio.Event()

    async def run(self) -> None:
        """Check after each change and at intervals, until cancelled. After a failure the last good certificate stays in use."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._changes.run())
            while True:
                good = await self.check()
                await self._changes.wait(self._pace.certificate if good else self._pace.certificate_retry)

    async def check(self) -> bool:
        """Load once; return False, and log the problem, if that failed."""
        try:
            pair, keys = await self._origin.load()
            if pair is not None and pair != self._pair:
                reload.load(self.context, pair)
                self._pair = pair
                logger.info("serving a new certificate", extra={"until": self.span().end.isoformat()})
        except (ClusterError, OSError, ssl.SSLError, ValueError) as error:
            self._problem = str(error)
            logger.warning("no new certificate", extra={"problem": self._problem})
            return False
        if keys != self._keys:
            self._keys = keys
            self._learned(keys)
        self._problem = ""
        self._first.set()
        return True

    async def first(self) -> None:
        """Wait until the signing keys, and the certificate if one is served, are loaded."""
        await self._first.wait()

    def unready(self) -> str:
        """Return why this process cannot serve or sign; "" if it can."""
        if not self._first.is_set():
            return self._problem
        return "expired" if self._pair is not None and self.days() <= 0 else ""

    def days(self) -> float:
        """Return the days until the certificate expires; 0 without one."""
        if self._pair is None:
            return 0.0
        return (self.span().end - dt.datetime.now(dt.UTC)) / dt.timedelta(days=1)

    def span(self) -> Span:
        """Return the lifetime of the certificate. Raises ValueError if there is none yet."""
        if self._pair is None:
            raise ValueError("there is no certificate yet")
        return authority.span(self._pair.certificate)
