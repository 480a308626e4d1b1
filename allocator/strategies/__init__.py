"""Strategies: which devices and node to choose if several would do."""

from allocator.strategies.choose import Chosen, best_node, choose_devices
from allocator.strategies.hardware import (
    HardwareUnit,
    Room,
    fragmentation,
    room,
    scale_of,
    units,
    units_of,
    utilisation,
)
from allocator.strategies.node_view import LooksAt, StrategyCache, split_equal_nodes
from allocator.strategies.placement import Placement, UnknownStrategy, read_placement
from allocator.strategies.strategy import DEFAULT, STRATEGIES

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "Chosen",
    "HardwareUnit",
    "LooksAt",
    "Placement",
    "Room",
    "StrategyCache",
    "UnknownStrategy",
    "best_node",
    "choose_devices",
    "fragmentation",
    "read_placement",
    "room",
    "scale_of",
    "split_equal_nodes",
    "units",
    "units_of",
    "utilisation",
]
