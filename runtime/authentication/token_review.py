"""Whose a ServiceAccount token is, and on which node its pod runs: the API server says so (TokenReview), and is remembered for a while.

A token counts only for the audience that it was made for, so one that was stolen elsewhere opens nothing here. Who sends garbage has it
looked at by the server, too: so only a few are asked about at once, and what they were is remembered as well.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cluster.errors import Unavailable
from cluster.resources import TOKEN_REVIEWS
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster

KEPT = 120.0  # seconds in which a token that was taken back still counts
FORGIVEN = 10.0  # the same for one that did not count
REMEMBERED = 8192
ASKED_AT_ONCE = 8
CROWD = 64
LONGEST = 4096
_NODE = "authentication.kubernetes.io/node-name"


class _TokenUser(msgspec.Struct, frozen=True):
    """Who an API server says somebody is."""

    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    """What it says of a token."""

    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _TokenUser = _TokenUser()


class Account(NamedTuple):
    """Who asks. A token that belongs to no pod names no node."""

    name: str = ""
    node: str = ""


class Crowded(Exception):  # noqa: N818  what it is like here
    """Too many tokens are being asked about."""


class TokenReviews:
    """Knows accounts by tokens of one audience."""

    def __init__(self, cluster: Cluster, audience: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._audience = audience
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Account, float]] = OrderedDict()
        self._turn = asyncio.Semaphore(ASKED_AT_ONCE)
        self._crowd = 0

    async def of(self, token: str) -> Account:
        """Say whose a token is; an account without a name if it is nobody's. ApiError if the server does not say, Crowded if it is not asked."""
        if not 0 < len(token) <= LONGEST or not token.isascii():
            return Account()
        sign = hashlib.sha256(token.encode()).digest()
        account, until = self._known.get(sign, (Account(), 0.0))
        if self._clock() < until:
            return account
        if self._crowd >= CROWD:
            raise Crowded
        self._crowd += 1
        try:
            async with self._turn:
                account = await self._ask(token)
        finally:
            self._crowd -= 1
        self._known[sign] = account, self._clock() + (KEPT if account.name else FORGIVEN)
        self._known.move_to_end(sign)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return account

    async def _ask(self, token: str) -> Account:
        spec = {"token": token, "audiences": [self._audience]}
        # The name is given back as it is, and an answer without one is taken for no object.
        review = {"metadata": {"name": "asked"}, "spec": spec}
        answer = await self._cluster.create(TOKEN_REVIEWS, review)
        status = answer.get("status")
        told = _read(status)
        # A server that knows nothing of audiences names none, and then the token may be for anybody.
        if not told.authenticated or self._audience not in told.audiences:
            return Account()
        return _account(told.user)


def _read(status: object) -> _TokenStatus:
    try:
        return convert(status or {}, _TokenStatus)
    except WireError as error:
        raise Unavailable(f"the answer is not a TokenReview: {error}") from None


def _account(user: _TokenUser) -> Account:
    nodes = user.extra.get(_NODE)
    return Account(user.username, nodes[0] if nodes else "")
