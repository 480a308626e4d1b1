"""The fields of `device` that selectors see, each declared once: its type, its size and its slot in the frame of an evaluation.

A field that is a map has parts, which are read one by one; any other is read as a whole. Sizes are those of
k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dra.cel.types import ANY, BOOL, QUANTITY, STRING, Type, map_of


class Extent(NamedTuple):
    """How large a value can be, and what is inside."""

    most: int
    key: Extent | None = None
    element: Extent | None = None
    fields: dict[str, Extent] = {}


class DeviceField(NamedTuple):
    """What a field is to the type checker and to the estimate of costs."""

    type: Type
    extent: Extent
    shared_devices: bool = False  # new expressions see it only where devices may be shared


ATTRIBUTE: Final = Extent(64)
_DOMAINS, _IDS = Extent(63), Extent(32)
# In the order of the slots, which `DeviceView` fills by these names.
FIELDS: Final = {
    "driver": DeviceField(STRING, Extent(63)),
    "allowMultipleAllocations": DeviceField(BOOL, Extent(1), shared_devices=True),
    "attributes": DeviceField(map_of(STRING, map_of(STRING, ANY)), Extent(32, _DOMAINS, Extent(32, _IDS, ATTRIBUTE))),
    "capacity": DeviceField(
        map_of(STRING, map_of(STRING, QUANTITY)), Extent(32, _DOMAINS, Extent(32, _IDS, Extent(0)))
    ),
}
SLOTS: Final = {name: slot for slot, name in enumerate(FIELDS)}
SCALARS: Final = frozenset(name for name, field in FIELDS.items() if field.type.kind != "map")
