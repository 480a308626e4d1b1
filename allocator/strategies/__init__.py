"""Strategies: which devices and node to choose if several would do."""

from allocator.strategies.choose import Chosen, choose_devices
from allocator.strategies.hardware import (
    fragmentation,
    room,
    rooms_of,
    units,
    utilisation,
)
from allocator.strategies.node_view import LooksAt, StrategyCache, split_equal_nodes
from allocator.strategies.placement import Placement, UnknownStrategy, read_placement
from allocator.strategies.strategy import DEFAULT, STRATEGIES

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "Chosen",
    "LooksAt",
    "Placement",
    "StrategyCache",
    "UnknownStrategy",
    "choose_devices",
    "fragmentation",
    "read_placement",
    "room",
    "rooms_of",
    "split_equal_nodes",
    "units",
    "utilisation",
]
