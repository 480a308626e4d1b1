"""The description of a driver and its kinds of parameters: one row of `DRIVERS` in `entries`."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.validation.fields.shape import Fields


class Order(Enum):
    """Which entry counts if several apply to one device."""

    LAST = "the last one"
    FIRST = "the first one"
    MERGED = "all of them, the later ones win"


class ParameterKind(NamedTuple):
    """The schema of one kind of parameters, and the devices that it is for."""

    form: Fields
    # Values of the attribute `type` of its devices; empty if it is for all devices.
    devices: frozenset[str] = frozenset()
    # The driver's feature gate that the kind needs.
    gate: str = ""


class KnownDriver(NamedTuple):
    """The parameters that a driver reads, according to its published sources."""

    name: str
    source: str  # the sources that were read, and their version
    version: str  # the apiVersion of its parameters; empty if they have neither apiVersion nor kind
    kinds: Mapping[str, ParameterKind]
    order: Order = Order.LAST
    # All values of the attribute `type` of its devices; empty if there is no such attribute, or if not all values are known.
    types: tuple[str, ...] = ()
    # Whether an entry without requests applies to none; with other drivers it applies to all.
    listed_only: bool = False
