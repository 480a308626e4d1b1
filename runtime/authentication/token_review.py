"""The account of a ServiceAccount token, and the node of its pod, as the API server says (TokenReview); answers are kept for a while.

A token counts only for the audience that it was made for, so one that was stolen elsewhere opens nothing here. Garbage is sent to
the server, too: so only a few tokens are asked about at once, and those that do not count are remembered as well.
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
    """The user of a token."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    """What an API server says of a token."""

    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _TokenUser = _TokenUser()


class Account(NamedTuple):
    """A caller. A token that belongs to no pod names no node."""

    name: str = ""
    node: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class TooManyTokens(Exception):  # noqa: N818  it is an answer, of a kind
    """Too many tokens are being asked about."""


class TokenReviews:
    """Knows accounts by tokens of one audience; by "" those of the API server itself."""

    def __init__(self, cluster: Cluster, audience: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._audience = audience
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Account, float]] = OrderedDict()
        self._turn = asyncio.Semaphore(ASKED_AT_ONCE)
        self._crowd = 0

    async def of(self, token: str) -> Account:
        """Find the account of a token; one without a name if it has none. ApiError if the server does not answer, TooManyTokens if it is not asked."""
        if not 0 < len(token) <= LONGEST or not token.isascii():
            return Account()
        sign = hashlib.sha256(token.encode()).digest()
        account, until = self._known.get(sign, (Account(), 0.0))
        if self._clock() < until:
            return account
        if self._crowd >= CROWD:
            raise TooManyTokens
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
        spec = {"token": token} | ({"audiences": [self._audience]} if self._audience else {})
        answer = await self._cluster.create(TOKEN_REVIEWS, {"spec": spec})
        status = answer.get("status")
        try:
            told = convert(status or {}, _TokenStatus)
        except WireError as error:
            raise Unavailable(f"the answer is not a TokenReview: {error}") from None
        # A server that knows nothing of audiences names none, and then the token may be for any audience.
        if not told.authenticated or (self._audience and self._audience not in told.audiences):
            return Account()
        user = told.user
        nodes = user.extra.get(_NODE)
        return Account(
            user.username, nodes[0] if nodes else "", user.uid, user.groups, tuple(sorted(user.extra.items()))
        )
