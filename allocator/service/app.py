"""Requests become calls: which path belongs to which group, which callers may ask, and what questions, answers and
refusals look like.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from dra.wire import WireError, decode, encode
from runtime.authentication import Callers, Credentials
from runtime.http import Limits, Reply, count_members

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from runtime.http import Head

    Answering = Callable[[Head, bytes], Reply | Coroutine[None, None, Reply]]
    Routes = Mapping[tuple[str, str], Answering]

logger = logging.getLogger("drawbridge.allocator")
MIB = 1 << 20
# A scheduler asks over few connections; what it sends is a pod and the names of nodes.
LIMITS = Limits(body=3 * MIB, connections=256, peer=256, deadline=5.0)
# Decoding more would hold the schedulers that are answered on the same loop.
MEMBERS = 60_000
BUG = "internal error, see the log of drawbridge"


class App:
    """One group of calls, by method and path."""

    def __init__(
        self, routes: Routes, *, token_file: str = "", names: Collection[str] = (), limits: Limits = LIMITS
    ) -> None:
        """Answer callers that show the token; of those that had to show a certificate, these names."""
        self.limits = limits
        self._routes = dict(routes)
        self._callers = Callers(Credentials(token_file=token_file))
        self._names = frozenset(names)

    def refuse(self, head: Head) -> Reply | None:
        """Refuse a request before its body is read, or not."""
        if self._names and head.certified and head.name not in self._names:
            return _no(
                HTTPStatus.FORBIDDEN,
                f"the certificate of {head.name[:80]!r} is not accepted",
                "give its common name to the allocator with --client-name",
            )
        if not self._callers.may_ask(head):
            return _no(
                HTTPStatus.UNAUTHORIZED,
                "the bearer token is missing or wrong",
                "send Authorization: Bearer ...",
            )
        if (head.method, head.path) not in self._routes:
            known = any(path == head.path for _, path in self._routes)
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            return _no(status, f"{head.method} {head.path[:80]} is not supported here", "see docs/bridge.md")
        most = self.limits.body
        if head.length > most:
            return _no(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {most} bytes", "send less")
        return None

    def answer(self, head: Head, body: bytes) -> Reply | Coroutine[None, None, Reply]:
        """Answer a request, at once or later. One request may fail; the next one is answered."""

        async def later(answer: Coroutine[None, None, Reply]) -> Reply:
            try:
                return await answer
            except Exception as error:  # noqa: BLE001  one request may fail
                return _refuse_error(head, error)

        if count_members(body) > MEMBERS:
            return _no(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MEMBERS} members", "send less")
        try:
            reply = self._routes[head.method, head.path](head, body)
        except Exception as error:  # noqa: BLE001  one request may fail
            return _refuse_error(head, error)
        return reply if isinstance(reply, Reply) else later(reply)


def _refuse_error(head: Head, error: Exception) -> Reply:
    if isinstance(error, HttpError):
        return refuse(error)
    logger.error("a bug while answering; please report it", extra={"path": head.path}, exc_info=error)
    return _no(HTTPStatus.INTERNAL_SERVER_ERROR, BUG, "try again")


def _no(status: int, message: str, remedy: str) -> Reply:
    return refuse(HttpError(status, message, remedy))


Q = TypeVar("Q")
JSON = "application/json"


class HttpError(Exception):
    """The request is not done: an HTTP status, why, and what to do."""

    def __init__(self, status: int, message: str, remedy: str = "", detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.remedy = remedy
        self.detail = detail or {}


def read_body(body: bytes, type_: type[Q]) -> Q:
    """Read a question."""
    try:
        return decode(body, type_)
    except WireError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}", "see docs/bridge.md") from None


def nothing(_: Head, body: bytes) -> tuple[()]:
    """Take neither query nor body into account."""
    del body
    return ()


def query(head: Head, _: bytes) -> tuple[dict[str, str]]:
    """Read the query; of a name that is there twice the last."""
    return ({name: values[-1] for name, values in parse_qs(head.query).items()},)


def whole(_: Head, body: bytes) -> tuple[bytes]:
    """Take the body as it is."""
    return (body,)


def read_as(type_: type[Any]) -> Callable[[Head, bytes], tuple[Any]]:
    """Read the body as a type."""
    return lambda _, body: (read_body(body, type_),)


class Endpoint(NamedTuple):
    """A method and a path, the function that answers there, what docs/bridge.md says of it, and what the function is given."""

    method: str
    path: str
    answer: Callable[..., Reply | Coroutine[None, None, Reply]]
    text: str
    read: Callable[[Head, bytes], tuple[object, ...]] = nothing


def routes(endpoints: Iterable[Endpoint], of: object) -> Routes:
    """Have an object answer at endpoints whose functions are methods of its class."""

    def answered(one: Endpoint) -> Answering:
        return lambda head, body: one.answer(of, *one.read(head, body))

    return {(endpoint.method, endpoint.path): answered(endpoint) for endpoint in endpoints}


def json(value: object, status: int = HTTPStatus.OK) -> Reply:
    """Answer with JSON."""
    return Reply(int(status), encode(value), JSON)


def refuse(refusal: HttpError) -> Reply:
    """Answer with why not."""
    return json({"error": refusal.message, "remedy": refusal.remedy, **refusal.detail}, refusal.status)
