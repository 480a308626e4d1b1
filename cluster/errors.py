"""The errors of this package, in one tree, so that callers never see an HTTP library's exceptions.

`ApiError` is a request that the API server refused or did not answer, classified by what the caller should do (k8s.io/apimachinery
pkg/api/errors). The two others are about local files and settings. `map_exceptions` translates foreign exceptions and keeps their cause.
"""

# ruff: noqa: N818  the names are the API's own reasons: Conflict, Gone, NotFound
from __future__ import annotations

from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class ClusterError(Exception):
    """The base class of all errors of `cluster`."""


class ConfigError(ClusterError):
    """The connection cannot be configured: a kubeconfig, context, token or certificate is missing or invalid."""


class StatusCause(msgspec.Struct, frozen=True):
    """A detail of a refusal: a field, or a further reason."""

    field: str = ""
    message: str = ""
    reason: str = ""


class ApiError(ClusterError):
    """The API server refused a request or did not answer. `status` is the HTTP code, 0 without an answer; `causes` are details."""

    status = 0
    reason = "Unknown"

    retry_after = 0.0  # seconds, if the server sent Retry-After

    def __init__(
        self,
        message: str,
        *,
        causes: tuple[StatusCause, ...] = (),
        status: int | None = None,
        reason: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.causes = causes
        self.retry_after = self.retry_after if retry_after is None else retry_after
        self.status = self.status if status is None else status
        self.reason = reason or self.reason

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)


class BadRequest(ApiError):
    """The request is malformed; the same request will never succeed."""

    status, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """The credentials are missing, wrong or expired."""

    status, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """The credentials are valid but lack the permission, or admission refused the object."""

    status, reason = 403, "Forbidden"


class NotFound(ApiError):
    """There is no such object, or no such resource on this server."""

    status, reason = 404, "NotFound"


class Conflict(ApiError):
    """Another client wrote in between, a precondition failed, or another manager owns the field: read again."""

    status, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    """An object with that name exists."""

    status, reason = 409, "AlreadyExists"


class Gone(ApiError):
    """The resource version or the continue token is too old: list again."""

    status, reason = 410, "Expired"


class Invalid(ApiError):
    """The object breaks the API's rules; `causes` name the fields."""

    status, reason = 422, "Invalid"


# The longest pause before a retry, even if the server's Retry-After is longer.
LONGEST_RETRY_SECONDS = 60.0


class Throttled(ApiError):
    """Too many requests: wait `retry_after` seconds."""

    status, reason = 429, "TooManyRequests"
    retry_after = 1.0


class Unavailable(ApiError):
    """The server cannot answer now, the connection failed, or the answer was invalid. Whether a write happened is unknown
    until the object is read again.
    """

    status, reason = 0, "ServiceUnavailable"


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a failure (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
}
_BY_CODE: Mapping[int, type[ApiError]] = {
    kind.status: kind for kind in (BadRequest, Unauthorized, Forbidden, NotFound, Conflict, Gone, Invalid, Throttled)
}
_READ_STATUS = msgspec.json.Decoder(Status).decode


def from_status(status: Status, *, retry_after: float | None = None) -> ApiError:
    code = status.code
    details = status.details or StatusDetails()
    message = status.message or f"the API server answered {code} {status.reason}".rstrip()
    seconds = retry_after
    if seconds is None and details.retry_after_seconds:
        seconds = float(details.retry_after_seconds)
    if seconds is not None:
        seconds = min(max(seconds, 0.0), LONGEST_RETRY_SECONDS)
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(code)
    if kind is None:
        # A 500 without Retry-After is an answer, for example after a webhook failed. The server is available.
        is_absent = code > HTTPStatus.INTERNAL_SERVER_ERROR or seconds is not None
        kind = Unavailable if is_absent else ApiError
    return kind(message, causes=details.causes or (), status=code, reason=status.reason or None, retry_after=seconds)


def from_response(code: int, body: bytes, *, retry_after: float | None = None) -> ApiError:
    """Convert an HTTP response to an error; the beginning of a body other than a Status (a proxy's page) is quoted."""
    try:
        status = _READ_STATUS(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = Status()
    if code == HTTPStatus.NOT_FOUND and not status.code:
        message = "the server could not find the requested resource"
        status = Status(code=code, reason="NotFound", message=message)
    if not status.code:
        text = status.message or body[:200].decode("utf-8", "replace").strip()
        status = Status(code=code, reason=status.reason, message=f"HTTP {code}: {text}" if text else f"HTTP {code}")
    return from_status(status, retry_after=retry_after)


@contextmanager
def map_exceptions(table: Mapping[type[Exception], Callable[[Exception], ClusterError]]) -> Iterator[None]:
    """Translate foreign exceptions by the first matching entry of a table; ours pass unchanged."""
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:
        for kind, translate in table.items():
            if isinstance(error, kind):
                raise translate(error) from error
        raise
