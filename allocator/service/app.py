"""HTTP calls: endpoints, the check of callers, and the form of request bodies, answers and errors."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

from dra.wire import WireError, decode, encode
from serving.authentication import Callers, Credentials
from serving.http import Limits, Reply, count_members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from serving.http import Head

    Answering = Callable[[Head, bytes], Reply | Coroutine[None, None, Reply]]
    Routes = Mapping[tuple[str, str], Answering]

logger = logging.getLogger("drawbridge.allocator")
MIB = 1 << 20
# A scheduler uses few connections and sends a pod and the names of nodes.
LIMITS = Limits(body=3 * MIB, connections=256, peer=256, deadline=5.0)
# Decoding more JSON members would delay other schedulers, which are answered on the same event loop.
MAX_MEMBERS = 60_000
BUG = "internal error, see the log of drawbridge"


class AllocatorApp:
    """The calls that one port answers, by method and path."""

    def __init__(
        self, routes: Routes, *, token_file: str = "", names: Collection[str] = (), limits: Limits = LIMITS
    ) -> None:
        """Accept callers with the token in the file. If there are `names`, a client certificate must have one of them."""
        self.limits = limits
        self._routes = dict(routes)
        self._callers = Callers(Credentials(token_file=token_file))
        self._names = frozenset(names)

    def refuse(self, head: Head) -> Reply | None:
        """Return the error for a request that is refused before its body is read; None if it is accepted."""
        if self._names and head.certified and head.name not in self._names:
            return _error_reply(
                HTTPStatus.FORBIDDEN,
                f"the certificate of {head.name[:80]!r} is not accepted",
                "give its common name to the allocator with --client-name",
            )
        if not self._callers.is_allowed(head):
            return _error_reply(
                HTTPStatus.UNAUTHORIZED,
                "the bearer token is missing or wrong",
                "send Authorization: Bearer ...",
            )
        if (head.method, head.path) not in self._routes:
            is_known_path = any(path == head.path for _, path in self._routes)
            status = HTTPStatus.METHOD_NOT_ALLOWED if is_known_path else HTTPStatus.NOT_FOUND
            return _error_reply(status, f"{head.method} {head.path[:80]} is not supported here", "see docs/bridge.md")
        limit = self.limits.body
        if head.length > limit:
            return _error_reply(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have at most {limit} bytes", "send a smaller body"
            )
        return None

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Return the answer to a request, or a coroutine that returns it. An exception becomes an error answer to this request."""

        async def answer_later(answer: Coroutine[None, None, Reply]) -> Reply:
            try:
                return await answer
            except Exception as error:  # noqa: BLE001  other requests must be answered
                return _refuse_error(head, error)

        if count_members(body) > MAX_MEMBERS:
            return _error_reply(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body may have at most {MAX_MEMBERS} JSON members",
                "send a smaller body",
            )
        try:
            reply = self._routes[head.method, head.path](head, body)
        except Exception as error:  # noqa: BLE001  other requests must be answered
            return _refuse_error(head, error)
        return reply if isinstance(reply, Reply) else answer_later(reply)


def _refuse_error(head: Head, error: Exception) -> Reply:
    if isinstance(error, HttpError):
        return _as_reply(error)
    logger.error("a bug while answering; please report it", extra={"path": head.path}, exc_info=error)
    return _error_reply(HTTPStatus.INTERNAL_SERVER_ERROR, BUG, "try again")


def _error_reply(status: int, message: str, remedy: str) -> Reply:
    return _as_reply(HttpError(status, message, remedy))


JSON = "application/json"


class HttpError(Exception):
    """An error answer: status, message and remedy."""

    def __init__(self, status: int, message: str, remedy: str = "", detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.remedy = remedy
        self.detail = detail or {}


def nothing(_: Head, body: bytes) -> tuple[()]:
    """Return no arguments, for an endpoint without arguments."""
    del body
    return ()


def query(head: Head, _: bytes) -> tuple[dict[str, str]]:
    """Return the query parameters as the argument of an endpoint. If a parameter is repeated, its last value counts."""
    return ({name: values[-1] for name, values in parse_qs(head.query).items()},)


def read_as(type_: type[Any]) -> Callable[[Head, bytes], tuple[Any]]:
    """Return a function that decodes the body as the argument of an endpoint, and raises HttpError if it is invalid."""

    def read(_: Head, body: bytes) -> tuple[Any]:
        try:
            return (decode(body, type_),)
        except WireError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}", "see docs/bridge.md") from None

    return read


class Endpoint(NamedTuple):
    """Method and path, the function that answers, its text in docs/bridge.md, and the function that reads its arguments."""

    method: str
    path: str
    answer: Callable[..., Reply | Coroutine[None, None, Reply]]
    text: str
    read: Callable[[Head, bytes], tuple[object, ...]] = nothing


def routes(endpoints: Iterable[Endpoint], handler: object) -> Routes:
    """Return the routes of endpoints. Each endpoint's function is a method of the class of `handler` and is called with `handler`."""

    def answered(endpoint: Endpoint) -> Answering:
        return lambda head, body: endpoint.answer(handler, *endpoint.read(head, body))

    return {(endpoint.method, endpoint.path): answered(endpoint) for endpoint in endpoints}


def json(value: object, status: int = HTTPStatus.OK) -> Reply:
    return Reply(int(status), encode(value), JSON)


def _as_reply(error: HttpError) -> Reply:
    return json({"error": error.message, "remedy": error.remedy, **error.detail}, error.status)
