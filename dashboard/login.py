"""Finds the account of a token (TokenReview), and the namespaces that the account may read (SubjectAccessReview). Does I/O.

Each request has a token: a bearer token, which a proxy may pass on, or a cookie that the login form sets and no script can read.
Tokens are not stored. The result of a TokenReview is cached by the hash of the token, for at most two minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import asynccontextmanager
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

from analysis.errors import Failed
from certs import mutual, reload
from cluster.errors import ApiError, Unavailable
from cluster.resources import SUBJECT_ACCESS_REVIEWS
from dra.texts import count_of
from serving.authentication import Account, TokenReviews, TooManyTokens
from serving.fair_cache import FairCache
from serving.http import StatusError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterable
    from ipaddress import IPv4Network, IPv6Network

    from cluster.protocol import Cluster
    from serving.http import Head, HttpRequest

logger = logging.getLogger("drawbridge.dashboard")
LOOK_SECONDS = 10.0  # seconds between two reads of the certificate's files
COOKIE: Final = "__Host-drawbridge"
LASTS = 12 * 3600  # seconds after which a browser forgets the token
KEPT = 60.0  # seconds for which a right is cached, even if it is removed
# Seconds for which a missing right is cached, because most namespaces of a large cluster belong to other tenants.
KEPT_MISSING = 300.0
_ASKED_AT_ONCE = 16
MAX_NAMESPACES = 2_000
MAX_PERMISSIONS = 32 * MAX_NAMESPACES  # cached
# To see the objects of a namespace here, an account must be allowed to list all of these there.
_LISTED: Final = (("", "pods"), ("resource.k8s.io", "resourceclaims"))
_EVENTS: Final = (("", "events"),)


@asynccontextmanager
async def certificate(file: str, key: str, *, every: float = LOOK_SECONDS) -> AsyncIterator[ssl.SSLContext]:
    """Yield a TLS context with the certificate in these files, and update it when they change."""
    files = mutual.Files(file, key, "")
    try:
        pair = mutual.read(files).pair
    except mutual.UnusableFile as error:
        raise Failed(str(error), "name a certificate and its key, in PEM") from None
    context = reload.context()
    reload.load(context, pair)

    async def follow() -> None:
        loaded_pair = pair
        while True:
            await asyncio.sleep(every)
            with contextlib.suppress(mutual.UnusableFile):  # the last valid certificate stays in use
                current = (await asyncio.to_thread(mutual.read, files)).pair
                if current != loaded_pair:
                    reload.load(context, current)
                    loaded_pair = current

    following = asyncio.create_task(follow())
    try:
        yield context
    finally:
        following.cancel()


class Viewer(NamedTuple):
    """An account, and the namespaces that it may see; None if it may see all."""

    name: str
    namespaces: frozenset[str] | None = None
    notice: str = ""  # what the pages do not show


class Login:
    """Finds the account of a viewer by the token of the request."""

    def __init__(
        self,
        cluster: Cluster,
        proxies: Iterable[IPv4Network | IPv6Network] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`proxies` are the addresses of proxies that name their client in X-Forwarded-For."""
        self._cluster = cluster
        self._proxies = tuple(proxies)
        self._clock = clock
        self._accounts = TokenReviews(cluster, "", clock)
        self._review_limit = asyncio.Semaphore(_ASKED_AT_ONCE)
        # The owner is the account's name, because an account may have many tokens.
        self._permissions = FairCache[tuple[Account, str, tuple[tuple[str, str], ...]], tuple[bool, float]]()
        # Concurrent requests of an account wait for the results of the first one.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def account_of(self, request: HttpRequest) -> Account | None:
        """Return the account of a request's token; None without a valid token."""
        return await self.account(request.head.bearer or request.cookie(COOKIE), request.head)

    async def account(self, token: str, head: Head) -> Account | None:
        """Return the account of a token; None if the token is not valid. Raises Refused if the API server gives no answer."""
        try:
            account = await self._accounts.account_of(token, self._client_of(head))
        except TooManyTokens:
            raise StatusError(HTTPStatus.TOO_MANY_REQUESTS, ("Retry-After", "5")) from None
        except ApiError as error:
            raise _unanswered("TokenReview", error) from None
        return account if account.name else None

    def _client_of(self, head: Head) -> str:
        """Return the address of the client that sent a request, also through our proxies. Other clients could forge the header."""
        client = head.peer
        for forwarded_for in reversed(head.headers.get("X-Forwarded-For", "").split(",")):
            if not any(ip_address(client) in proxy for proxy in self._proxies):
                break
            try:
                client = str(ip_address(forwarded_for.strip()))
            except ValueError:
                break
        return client

    async def viewer(self, account: Account, namespaces: Iterable[str]) -> Viewer:
        """Return which of these namespaces an account may see."""
        tasks: list[asyncio.Task[bool]] = []
        try:
            async with self._locks.setdefault(account.name, asyncio.Lock()):
                if await self._may_list(account, ""):
                    return Viewer(account.name)
                names = sorted(set(namespaces))
                checked = names[:MAX_NAMESPACES]
                tasks += [asyncio.create_task(self._may_list(account, namespace)) for namespace in checked]
                permissions = await asyncio.gather(*tasks)
        except ApiError as error:
            raise _unanswered("SubjectAccessReview", error) from None
        finally:
            for task in tasks:  # after the first failure, ask nothing more
                task.cancel()
        visible = frozenset(name for name, is_visible in zip(checked, permissions, strict=True) if is_visible)
        if len(names) == len(checked):
            return Viewer(account.name, visible)
        unchecked = count_of(len(names) - len(checked), "namespace")
        why = f"The dashboard checks an account's rights in the first {MAX_NAMESPACES:,} namespaces by name."
        return Viewer(account.name, visible, f"Not shown: {unchecked}. {why}")

    async def may_see_events(self, account: Account, namespace: str) -> bool:
        """Return whether an account may list the events of a namespace."""
        try:
            return await self._may_list(account, namespace, _EVENTS)
        except ApiError as error:
            raise _unanswered("SubjectAccessReview", error) from None

    async def _may_list(self, account: Account, namespace: str, kinds: tuple[tuple[str, str], ...] = _LISTED) -> bool:
        """Return whether the account may list these kinds in a namespace; "" means in all namespaces."""
        key = account, namespace, kinds
        may, until = self._permissions.get(key) or (False, float("-inf"))
        if self._clock() < until:
            return may
        async with self._review_limit:
            begun = self._clock()
            user = {"user": account.name, "groups": list(account.groups), "uid": account.uid}
            extra = {key: list(values) for key, values in account.extra}
            may = True
            for group, resource in kinds:
                attributes = {"namespace": namespace, "verb": "list", "group": group, "resource": resource}
                spec = {"resourceAttributes": attributes, "extra": extra, **user}
                answer = await self._cluster.create(SUBJECT_ACCESS_REVIEWS, {"spec": spec})
                status = answer.get("status")
                if not isinstance(status, dict):
                    raise Unavailable("the answer is not a SubjectAccessReview")
                may = status.get("allowed") is True and status.get("denied") is not True
                if not may:
                    break
        until = begun + (KEPT if may else KEPT_MISSING)
        self._permissions.put(key, (may, until), owner=account.name, limit=MAX_PERMISSIONS)
        return may


def _unanswered(review: str, error: ApiError) -> StatusError:
    """Log the reason, and return a refusal without the reason, because the client may not be authenticated."""
    logger.warning("%s: %s (the dashboard's account needs the ClusterRole system:auth-delegator)", review, error)
    return StatusError(HTTPStatus.SERVICE_UNAVAILABLE, ("Retry-After", "5"))
