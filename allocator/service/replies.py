"""Answers as JSON, those that say no among them, and questions as they are read. What is asked is not known here."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from dra.wire import WireError, decode, encode
from runtime.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from allocator.service.app import Answering

Q = TypeVar("Q")
JSON = "application/json"


class Refusal(Exception):  # noqa: N818  an answer to a scheduler, not an error of ours
    """What was asked for is not done: an HTTP status, why, and what to do."""

    def __init__(self, status: int, message: str, remedy: str = "", detail: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.remedy = remedy
        self.detail = detail or {}


def read(body: bytes, type_: type[Q]) -> Q:
    """Read a question."""
    try:
        return decode(body, type_)
    except WireError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {error}", "see docs/bridge.md") from None


def asked(type_: type[Q], answer: Callable[[Q], Reply | Coroutine[None, None, Reply]]) -> Answering:
    """Answer questions that are read as a type."""
    return lambda _, body: answer(read(body, type_))


def json(value: object, status: int = HTTPStatus.OK) -> Reply:
    """Answer with JSON."""
    return Reply(int(status), encode(value), JSON)


def refuse(refusal: Refusal) -> Reply:
    """Answer with why not."""
    return json({"error": refusal.message, "remedy": refusal.remedy, **refusal.detail}, refusal.status)
