"""Keeps the serving certificate and the signing keys of a process up to date.

| process | certificate | signing keys |
|---|---|---|
| authority | from the shared Secrets, which it also renews and rotates | from the shared Secrets |
| webhook | from the shared Secrets, or from files that another program renews | from the shared Secrets |
| controllers | none, because they serve no requests | from the shared Secrets |
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from certs import authority, reload
from certs.authority import Pair
from cluster.errors import ClusterError, NotFound
from webhook.service.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from certs.change_watch import ChangeWatch
    from certs.store import SecretStore

logger = logging.getLogger("drawbridge.certificate")
INCOMPLETE = "the Secret is not complete yet; is drawbridge's authority running?"


class Origin(NamedTuple):
    """Where a process gets its certificate and the signing keys; see the table above."""

    store: SecretStore
    is_authority: bool  # creates, renews and rotates the content of the Secrets
    serves: bool  # needs a certificate
    files: tuple[str, str] | None  # a certificate and its key, which another program such as cert-manager renews

    async def load(self) -> tuple[Pair | None, tuple[bytes, ...]]:
        """Return the certificate, if the process has one, and the signing keys. Raises ClusterError or OSError while they cannot be read."""
        pair = None
        if self.is_authority or (self.serves and not self.files):
            material = await (self.store.sync() if self.is_authority else self.store.read())
            pair, keys = material.leaf, material.signing_keys.keys
            is_complete = pair is not None and bool(keys)
        else:
            keys = (await self.store.signing_keys()).keys
            is_complete = bool(keys)
        if not is_complete:
            raise NotFound(INCOMPLETE)
        if self.files:
            certificate, key = (Path(file).read_bytes() for file in self.files)  # noqa: ASYNC240  two small files
            pair = Pair(certificate, key)
        return pair, keys


class Certificate:
    """A TLS context that always has the newest certificate."""

    def __init__(
        self,
        origin: Origin,
        changes: ChangeWatch,
        on_keys: Callable[[tuple[bytes, ...]], None],
        pace: Pace = Pace(),  # noqa: B008  a value
    ) -> None:
        """`on_keys` is called with the signing keys whenever they change; `changes` wakes `run` when a Secret changes."""
        self.context = reload.context()
        self._origin = origin
        self._changes = changes
        self._pace = pace
        self._on_keys = on_keys
        self._pair: Pair | None = None
        self._end: dt.datetime | None = None  # of the certificate
        self._keys: tuple[bytes, ...] = ()
        self._problem = "no certificate yet"
        self._loaded = asyncio.Event()

    async def run(self) -> None:
        """Check after each change and at intervals, until cancelled. After a failure the last good certificate stays in use."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._changes.run())
            while True:
                is_loaded = await self.check()
                await self._changes.wait(self._pace.certificate if is_loaded else self._pace.certificate_retry)

    async def check(self) -> bool:
        """Load once; return False, and log the problem, if that failed."""
        try:
            pair, keys = await self._origin.load()
            if pair is not None and pair != self._pair:
                reload.load(self.context, pair)
                self._pair, self._end = pair, authority.span(pair.certificate).end
                logger.info("serving a new certificate", extra={"until": self._end.isoformat()})
        except (ClusterError, OSError, ssl.SSLError, ValueError) as error:
            self._problem = str(error)
            logger.warning("no new certificate", extra={"problem": self._problem})
            return False
        if keys != self._keys:
            self._keys = keys
            self._on_keys(keys)
        self._problem = ""
        self._loaded.set()
        return True

    async def wait_until_loaded(self) -> None:
        """Wait until the signing keys are loaded, and the certificate if the process has one."""
        await self._loaded.wait()

    def unready(self) -> str:
        """Return why this process cannot serve or sign; "" if it can."""
        if not self._loaded.is_set():
            return self._problem
        return "expired" if self._end is not None and self.days() <= 0 else ""

    def days(self) -> float:
        """Return the days until the certificate expires; 0 without one."""
        return (self._end - dt.datetime.now(dt.UTC)) / dt.timedelta(days=1) if self._end else 0.0
