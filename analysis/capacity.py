"""How many devices there are and how many are in use: one count for `nodes`, the dashboard and the survey. Pure."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from webhook.dialects import Role
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from analysis.explain import DeviceHeld, NodeStory
    from dra.stock import Stock

# The states of a device, in the order in which they are shown.
STATES = ("free", "shared", "held", "plugin", "blocked", "unknown")
PLUGIN = "plugin"
# The parts of a request that say how much of a device is requested.
_AMOUNTS = (Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES, Role.COMBINED, Role.PRIORITY)


@lru_cache(maxsize=1024)
def is_count(key: str) -> bool:
    """Return whether the amounts of a device plugin's resource are devices, and not megabytes or percents of one."""
    return not any(known.row.role in _AMOUNTS for known in Configuration().resource(key))


def count_devices(
    nodes: Iterable[NodeStory], of: Callable[[NodeStory, DeviceHeld], str] = lambda _, device: device.state
) -> dict[str, int]:
    """Count devices by state, or by what `of` returns. A device that several nodes reach counts once; of a plugin, what its pods have."""
    names: set[str] = set()
    counted: Counter[str] = Counter()
    for node in nodes:
        for device in node.devices:
            if device.state == PLUGIN:
                amounts = (amount for one in device.holders for amount in one.share.values())
                used = sum(int(amount) for amount in amounts if amount.isdigit())
                counted[of(node, device)] += used if is_count(device.device) else 0
            elif device.device not in names:
                names.add(device.device)
                counted[of(node, device)] += 1
    ordered = sorted(counted, key=lambda one: STATES.index(one) if one in STATES else len(STATES))
    return {one: counted[one] for one in ordered if counted[one]}


def in_use(counts: Mapping[str, int]) -> int:
    """Return how many devices have a holder."""
    return sum(counts.get(state, 0) for state in ("held", "shared", PLUGIN))


def published(stock: Stock) -> dict[str, tuple[int, int]]:
    """Count what every driver publishes now, in the newest generation of each pool: nodes and devices."""
    devices: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for pool in stock.pages_of:
        for page in stock.newest_pages(pool):
            driver = page.slice.spec.driver
            devices[driver] += len(page.devices)
            nodes.setdefault(driver, set()).add(page.node_name)
    return {name: (len(nodes[name]), devices[name]) for name in sorted(devices)}
