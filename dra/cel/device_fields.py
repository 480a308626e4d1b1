"""The fields of `device` in selectors: their types, maximum sizes, and slots in the frame of an evaluation.

Sizes are those of k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dra import server
from dra.cel.types import ANY, BOOL, QUANTITY, STRING, Type, map_of


class Extent(NamedTuple):
    """The maximum size of a value, and of its keys, elements or fields."""

    maximum: int
    key: Extent | None = None
    element: Extent | None = None
    fields: dict[str, Extent] = {}


class DeviceField(NamedTuple):
    """The type of a field for the type checker, and its extent for the cost estimate."""

    type: Type
    extent: Extent
    gate: str = ""  # new expressions can use the field only if this feature gate is on


ATTRIBUTE: Final = Extent(64)
_DOMAINS, _IDS = Extent(63), Extent(32)
# The order is the order of the slots; `DeviceView` fills the slots by these names.
FIELDS: Final = {
    "driver": DeviceField(STRING, Extent(63)),
    "allowMultipleAllocations": DeviceField(BOOL, Extent(1), gate=server.CAPACITY),
    "attributes": DeviceField(map_of(STRING, map_of(STRING, ANY)), Extent(32, _DOMAINS, Extent(32, _IDS, ATTRIBUTE))),
    "capacity": DeviceField(
        map_of(STRING, map_of(STRING, QUANTITY)), Extent(32, _DOMAINS, Extent(32, _IDS, Extent(0)))
    ),
}
SLOTS: Final = {name: slot for slot, name in enumerate(FIELDS)}
SCALARS: Final = frozenset(name for name, field in FIELDS.items() if field.type.kind != "map")
