"""Reads an allocator's reservations on this node. The allocator may be absent or slow; the agent's other work continues."""

from __future__ import annotations

import asyncio
import logging
import ssl
from base64 import b64decode
from http import HTTPStatus
from pathlib import Path
from socket import SOCK_STREAM
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from cluster import ApiError
from cluster.resources import MUTATING_WEBHOOKS
from node.audit import InvalidAnswer, plain, read_reservations

if TYPE_CHECKING:
    from cluster import Cluster
    from node.audit import NodeReservation
    from node.service.settings import AllocatorAddress

PATH = "/reservations"
PATIENCE = 2.0  # seconds for one call; meanwhile no marks are written
REST = 30.0  # seconds between a call without an answer and the next call
MAX_REPORTED = 100  # uids of claims in one call
LONGEST = 200  # characters of an answer that a message quotes
REPLICAS = 8  # at most as many are called, one after the other, because only the leader answers
WEBHOOK = "drawbridge"  # the MutatingWebhookConfiguration that holds the CA bundle
logger = logging.getLogger("drawbridge.agent")


class Unanswered(Exception):  # noqa: N818  names the outcome
    """The allocator gave no answer; the message says why."""


class AllocatorClient:
    """Reads the reservations on one node. `problem` is the reason why the last call had no answer."""

    def __init__(
        self, cluster: Cluster, address: AllocatorAddress, node: str, *, patience: float = PATIENCE, rest: float = REST
    ) -> None:
        """`patience` is the timeout of one call, `rest` the pause after a call without an answer."""
        self._cluster = cluster
        self._address = address
        self._node = node
        self._patience = patience
        self._rest = rest
        self._clock = asyncio.get_running_loop().time
        self._retry_at = float("-inf")
        self._context: ssl.SSLContext | None = None
        self.problem = ""

    async def ask(self, prepared: frozenset[str] | None = None) -> tuple[NodeReservation, ...] | None:
        """Read the reservations; None if there is no answer.

        Report the uids of the unallocated claims that the kubelet has prepared, unless `prepared` is None.
        """
        if self._clock() < self._retry_at:
            return None
        try:
            async with asyncio.timeout(self._patience):
                reservations = await self._request(prepared)
        except (Unanswered, InvalidAnswer, ApiError, OSError, ValueError, aiohttp.ClientError, TimeoutError) as error:
            self._context = None  # the CA may have changed
            self._retry_at = self._clock() + self._rest
            why = plain(str(error) or type(error).__name__, LONGEST)[:LONGEST]
            if isinstance(error, TimeoutError):
                why = f"no answer within {self._patience:g} s"
            self._note_problem(why)
            return None
        self._note_problem("")
        return reservations

    def _note_problem(self, problem: str) -> None:
        """Log when reservations cannot be read, and when they can be read again."""
        if problem and not self.problem:
            logger.warning("the allocator's reservations cannot be read", extra={"why": problem})
        elif self.problem and not problem:
            logger.info("the allocator's reservations can be read again")
        self.problem = problem

    async def _request(self, prepared: frozenset[str] | None) -> tuple[NodeReservation, ...]:
        report = "" if prepared is None else f"?prepared={','.join(sorted(prepared)[:MAX_REPORTED])}"
        parsed = urlsplit(self._address.url)
        if parsed.scheme == "https" and self._context is None:
            authorities = ""
            if not self._address.ca_file:
                configuration = await self._cluster.get(MUTATING_WEBHOOKS, WEBHOOK)
                # While the bundle is renewed, webhooks can have different bundles.
                bundles = {webhook.client_config.ca_bundle for webhook in configuration.webhooks}
                authorities = "\n".join(b64decode(bundle).decode() for bundle in bundles)
                if not authorities:
                    raise Unanswered(f"the MutatingWebhookConfiguration {WEBHOOK} has no CA bundle yet")
            self._context = ssl.create_default_context(cafile=self._address.ca_file or None, cadata=authorities or None)
        headers = {"Host": parsed.netloc}
        if token_file := self._address.token_file:
            headers["Authorization"] = f"Bearer {Path(token_file).read_text().strip()}"  # noqa: ASYNC240  a small file
        port = parsed.port or (443 if parsed.scheme == "https" else 80)
        infos = await asyncio.get_running_loop().getaddrinfo(parsed.hostname, port, type=SOCK_STREAM)
        addresses = [f"[{address[0]}]" if ":" in str(address[0]) else str(address[0]) for *_, address in infos]
        problem: Exception = Unanswered(f"{parsed.hostname} has no address")
        timeouts = aiohttp.ClientTimeout(total=None, sock_connect=self._patience / 4)
        async with aiohttp.ClientSession(timeout=timeouts) as session:
            for host in list(dict.fromkeys(addresses))[:REPLICAS]:
                call = session.get(
                    f"{parsed.scheme}://{host}:{port}{PATH}{report}",
                    headers=headers,
                    ssl=self._context or True,
                    server_hostname=parsed.hostname if self._context else None,
                    allow_redirects=False,
                )
                try:
                    async with call as response:
                        body = await response.read()
                except aiohttp.ClientError as error:  # this replica cannot be reached
                    problem = error
                    continue
                if response.status == HTTPStatus.OK:
                    return read_reservations(body, self._node)
                # This replica does not lead.
                problem = Unanswered(f"{response.status} {body[:LONGEST].decode(errors='replace')!r}")
        raise problem
