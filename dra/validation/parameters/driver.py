"""A driver, and the kinds of parameters that it reads: one row of `DRIVERS` in `entries`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.validation.fields.shape import Fields


class Order(Enum):
    """Which of several entries counts that reach one device."""

    LAST = "the last one"
    FIRST = "the first one"
    MERGED = "all of them, the later ones win"


class ParameterKind(NamedTuple):
    """What parameters of one kind look like, and for which of the driver's devices they are."""

    form: Fields
    # Values of the attribute `type` of the devices that it is for; nothing if it is for all.
    devices: frozenset[str] = frozenset()
    # The driver's feature gate without which it refuses the kind.
    gate: str = ""


class KnownDriver(NamedTuple):
    """What a driver reads, by its published sources."""

    name: str
    source: str  # which sources were read, and how old they are
    version: str  # the apiVersion of its parameters; nothing if they have neither that nor a kind
    kinds: Mapping[str, ParameterKind]
    order: Order = Order.LAST
    # Values of the attribute `type` of its devices; nothing if it has no such attribute or more than we know.
    types: tuple[str, ...] = ()
    # An entry that names no request reaches none, where others reach all.
    listed_only: bool = False
