"""How near devices are to each other, by what drivers publish of buses, links and memory nodes.

There is no one attribute for this. Each level below is known under several names; names are compared without their domain,
so that a GPU and a NIC of different drivers can be neighbours. A device that says nothing at a level is no further from
others for it.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from allocator.problem import values_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.objects import Device

Site = tuple[frozenset[object], ...]  # values per level

# Nearest first, with what it costs two devices not to share the level.
LEVELS: tuple[tuple[float, frozenset[str]], ...] = (
    (8.0, frozenset({"nvlinkdomain", "nvlinkclique", "cliqueid", "nvlink", "xgmihive", "hiveid", "fabricid"})),
    (4.0, frozenset({"pcieswitch", "pciswitch", "pcieroot", "pciroot", "pcierootcomplex", "pciebusroot"})),
    (2.0, frozenset({"numanode", "numanodeid", "numa", "numaid"})),
    (1.0, frozenset({"socket", "socketid", "cpusocketid", "cpusocket"})),
)
_WORST = sum(cost for cost, _ in LEVELS)


def site(device: Device) -> Site:
    """Say where a device sits."""
    by_name = {name.rpartition("/")[2].lower(): attribute for name, attribute in device.attributes.items()}
    return tuple(
        frozenset(value for name in names & by_name.keys() for _, value in values_of(by_name[name]))
        for _, names in LEVELS
    )


def apart(one: Site, other: Site) -> float:
    """Say what it costs two devices to be used together."""
    return sum(cost for (cost, _), a, b in zip(LEVELS, one, other, strict=True) if a and b and not a & b)


def spread(sites: Sequence[Site]) -> float:
    """Add up the costs of all pairs."""
    return sum(apart(one, other) for one, other in combinations(sites, 2))


def worst(sites: Sequence[Site]) -> float:
    """Say what the same number of devices could cost at most."""
    return _WORST * len(sites) * (len(sites) - 1) / 2


def seeds(sites: Iterable[Site], most: int = 16) -> list[Site]:
    """List the different places devices sit at, in order of appearance."""
    return [one for one in dict.fromkeys(sites) if any(one)][:most]
