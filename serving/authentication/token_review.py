"""Finds the account of a ServiceAccount token and the node of its pod by TokenReview; results are cached for a while.

A token is valid only for its audience, so a token that was stolen from another service is useless here. Invalid tokens must be reviewed, too, so
the number of concurrent reviews is limited, and negative results are cached as well. Tokens that were valid before do not wait behind new ones.
Each address may have only a few new tokens under review. If too many are under review in total, the address with the most loses the newest of
its tokens. So a client that guesses tokens blocks neither the known nor the new tokens of other clients.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cluster.errors import Unavailable
from cluster.resources import TOKEN_REVIEWS
from dra.wire import WireError, convert
from serving.fair_cache import FairCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster

VALID_SECONDS = 120.0  # time for which a valid token is cached, even if it is revoked
INVALID_SECONDS = 10.0  # time for which an invalid token is cached
MAX_CACHED = 8192
CONCURRENT_REVIEWS = 8
MAX_WAITING = 64
MAX_WAITING_OF_PEER = 16
LONGEST = 4096  # the most bytes of a token
_NODE = "authentication.kubernetes.io/node-name"


class _TokenUser(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    audiences: tuple[str, ...] = ()
    user: _TokenUser = _TokenUser()


class Account(NamedTuple):
    """A caller's account; `node` is empty if the token belongs to no pod."""

    name: str = ""
    node: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class TooManyTokens(Exception):  # noqa: N818  names the outcome
    """Too many tokens are being reviewed."""


class TokenReviews:
    """Finds accounts by tokens of one audience; "" is the API server's audience."""

    def __init__(self, cluster: Cluster, audience: str, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._audience = audience
        self._clock = clock
        # By the hash of the token. Invalid tokens have a cache of their own, so that they push no valid token out.
        self._valid = FairCache[bytes, tuple[Account, float]]()
        self._invalid = FairCache[bytes, tuple[Account, float]]()
        # Reviews of tokens that were valid before (True) and of other tokens (False) have separate limits.
        self._turns = {was_valid: asyncio.Semaphore(CONCURRENT_REVIEWS) for was_valid in (True, False)}
        # The timeouts of the reviews of new tokens, by address, the oldest first. A timeout that expires refuses its token.
        self._new: dict[str, list[asyncio.Timeout]] = {}

    async def account_of(self, token: str, peer: str = "") -> Account:
        """Return the account of a token, without a name if it is invalid. Raises ApiError if the server does not answer, or TooManyTokens."""
        if not 0 < len(token) <= LONGEST or not token.isascii():
            return Account()
        digest = hashlib.sha256(token.encode()).digest()
        account, until = self._valid.get(digest) or self._invalid.get(digest) or (Account(), 0.0)
        if self._clock() < until:
            return account
        account = await (self._review(token, was_valid=True) if account.name else self._review_new(token, peer))
        seconds = VALID_SECONDS if account.name else INVALID_SECONDS
        cache, other = (self._valid, self._invalid) if account.name else (self._invalid, self._valid)
        other.discard(digest)
        owner = account.name, account.node
        cache.put(digest, (account, self._clock() + seconds), owner=owner, limit=MAX_CACHED)
        return account

    async def _review_new(self, token: str, peer: str) -> Account:
        """Review a token that was not valid before, unless too many of its address or of all addresses wait."""
        timeouts_of_peer = self._new.get(peer, [])
        if len(timeouts_of_peer) >= MAX_WAITING_OF_PEER:
            raise TooManyTokens
        if sum(map(len, self._new.values())) >= MAX_WAITING:
            longest_list = max(self._new.values(), key=len)
            if len(longest_list) <= len(timeouts_of_peer) + 1:
                raise TooManyTokens
            longest_list.pop().reschedule(0.0)
        timeout = asyncio.timeout(None)
        self._new[peer] = [*timeouts_of_peer, timeout]
        try:
            async with timeout:
                return await self._review(token, was_valid=False)
        except TimeoutError:
            if timeout.expired():
                raise TooManyTokens from None
            raise
        finally:
            if others := [other for other in self._new.pop(peer, ()) if other is not timeout]:
                self._new[peer] = others

    async def _review(self, token: str, *, was_valid: bool) -> Account:
        spec = {"token": token} | ({"audiences": [self._audience]} if self._audience else {})
        async with self._turns[was_valid]:
            answer = await self._cluster.create(TOKEN_REVIEWS, {"spec": spec})
        status = answer.get("status")
        try:
            token_status = convert(status or {}, _TokenStatus)
        except WireError as error:
            raise Unavailable(f"the answer is not a TokenReview: {error}") from None
        # A server that does not support audiences returns none, and then the token could be for any audience.
        if not token_status.authenticated or (self._audience and self._audience not in token_status.audiences):
            return Account()
        user = token_status.user
        nodes = user.extra.get(_NODE)
        return Account(
            user.username, nodes[0] if nodes else "", user.uid, user.groups, tuple(sorted(user.extra.items()))
        )
