"""The description of a driver and of its kinds of parameters. `DRIVERS` in `entries` has one for each known driver."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.validation.fields.shape import Fields


class Order(Enum):
    """Which entry of parameters counts if several entries apply to one device."""

    LAST = "the last one"
    FIRST = "the first one"
    MERGED = "all of them, the later ones win"


class ParameterKind(NamedTuple):
    """The schema of one kind of parameters, and the devices for which it is."""

    form: Fields
    # The values of the attribute `type` of these devices; empty if the kind is for all devices.
    devices: frozenset[str] = frozenset()
    # The feature gate of the driver that must be on for this kind.
    gate: str = ""


class KnownDriver(NamedTuple):
    """The parameters that a driver reads, according to the driver's published sources."""

    name: str
    source: str  # the repository of the sources, and their version
    version: str  # the apiVersion of the parameters; empty if the parameters have neither apiVersion nor kind
    kinds: Mapping[str, ParameterKind]
    order: Order = Order.LAST
    # All values of the attribute `type` of the driver's devices; empty if there is no such attribute, or if not all values are known.
    types: tuple[str, ...] = ()
    # Whether the driver applies an entry without requests to no request; other drivers apply such an entry to all requests.
    listed_only: bool = False
