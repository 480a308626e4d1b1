"""Finds the words of all dialects on a raw pod, and checks them as the API server would have.

The pod stays a plain JSON value: it may hold fields newer than we are, and in a file it may be malformed anywhere. What
has not the expected shape is passed over here and left to the API server's own answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.errors import QuantityError
from dra.quantity import NANO, parse
from dra.wire import Json
from webhook.dialects import Refusal
from webhook.state import Known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.state import Configuration

_LISTS = ("initContainers", "containers")


class Word(msgspec.Struct, frozen=True, gc=False):
    """A resource key that some dialect knows, as it stands on a container."""

    key: str
    known: tuple[Known, ...]
    limit: Json = None
    request: Json = None

    @property
    def raw(self) -> Json:
        return self.request if self.limit is None else self.limit


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container that says something, and where it stands."""

    list: str
    index: int
    order: int  # among all containers, in starting order
    name: str
    raw: dict[str, Json]
    sidecar: bool
    words: tuple[Word, ...]

    @property
    def init(self) -> bool:
        """Whether it ends before the containers after it begin."""
        return self.list == "initContainers" and not self.sidecar


def mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def slots(spec: dict[str, Json], configuration: Configuration) -> list[Slot]:
    """List all containers in starting order, each with the words it says."""
    return list(_slots(spec, configuration))


def _slots(spec: dict[str, Json], configuration: Configuration) -> Iterator[Slot]:
    order = 0
    for name in _LISTS:
        containers = spec.get(name)
        if not isinstance(containers, list):
            continue
        for index, raw in enumerate(containers):
            if not isinstance(raw, dict):
                continue
            order += 1
            yield Slot(
                list=name,
                index=index,
                order=order,
                name=str(raw.get("name", "")),
                raw=raw,
                sidecar=name == "initContainers" and raw.get("restartPolicy") == "Always",
                words=_words(raw, configuration),
            )


def _words(container: dict[str, Json], configuration: Configuration) -> tuple[Word, ...]:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return ()
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    names = [*limits, *(name for name in requests if name not in limits)]
    return tuple(
        Word(name, known, limits.get(name), requests.get(name))
        for name in names
        if (known := configuration.resource(name))
    )


def number(word: Word) -> int | Refusal:
    """Read a word as a whole number, or say why the API server would refuse it (validation of extended resources)."""
    try:
        limit = None if word.limit is None else parse(_text(word.limit))
        request = None if word.request is None else parse(_text(word.request))
    except QuantityError as error:
        return Refusal(word.key, f"{word.raw!r} is no quantity: {error}", "write a whole number")
    if limit is None:
        return Refusal(word.key, "is requested without a limit", "set the same number as a limit")
    if request is not None and request != limit:
        return Refusal(word.key, f"request {word.request} and limit {word.limit} differ", "make them equal")
    if limit.nano % NANO:
        return Refusal(word.key, f"{word.limit} is not a whole number", "devices are not divisible here: round it")
    if limit.nano < 0:
        return Refusal(word.key, f"{word.limit} is negative", "write a number from 0 up")
    return limit.nano // NANO


def equal(left: Json, right: Json) -> bool:
    """Compare two amounts as quantities."""
    try:
        return parse(_text(left)) == parse(_text(right))
    except QuantityError:
        return bool(left == right)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else repr(value)
