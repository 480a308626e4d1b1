"""The stock: an immutable snapshot of the published devices and of the claims that hold devices."""

from dra.stock.amounts import ALL_CLASSES, DEVICES, ONE, PROFILE, SHARES, Amounts, amounts_of, total
from dra.stock.capacity import charges
from dra.stock.counters import Counters, available, overdrawn
from dra.stock.equivalence import Body, Consumption, CounterUse, body
from dra.stock.pool import Page, Pool, PoolDevices, PoolStatus, newest, reaches, targets, usable
from dra.stock.slice_reading import SliceReading
from dra.stock.stock import Stock
from dra.stock.usage import FREE, PoolId, PoolUse, results_by_pool

__all__ = [
    "ALL_CLASSES",
    "DEVICES",
    "FREE",
    "ONE",
    "PROFILE",
    "SHARES",
    "Amounts",
    "Body",
    "Consumption",
    "CounterUse",
    "Counters",
    "Page",
    "Pool",
    "PoolDevices",
    "PoolId",
    "PoolStatus",
    "PoolUse",
    "SliceReading",
    "Stock",
    "amounts_of",
    "available",
    "body",
    "charges",
    "newest",
    "overdrawn",
    "reaches",
    "results_by_pool",
    "targets",
    "total",
    "usable",
]
