"""Claims and devices become integers: the question, what each device is to it, and who holds what."""

from __future__ import annotations

from allocator.problem.candidates import (
    OPTIONAL_OPERATIONS,
    Fault,
    Judge,
    Judgement,
    Offer,
    Place,
    Refused,
    Values,
    places,
    values_of,
)
from allocator.problem.compiler import Compiler
from allocator.problem.occupancy import PoolState, pool_state
from allocator.problem.packing import bitset, members, spans, union
from allocator.problem.problem import Item, Problem, Unit, Value
from allocator.problem.question import MAX_RESULTS, Leaf, Shape, claim_key, shape_of

__all__ = [
    "MAX_RESULTS",
    "OPTIONAL_OPERATIONS",
    "Compiler",
    "Fault",
    "Item",
    "Judge",
    "Judgement",
    "Leaf",
    "Offer",
    "Place",
    "PoolState",
    "Problem",
    "Refused",
    "Shape",
    "Unit",
    "Value",
    "Values",
    "bitset",
    "claim_key",
    "members",
    "places",
    "pool_state",
    "shape_of",
    "spans",
    "union",
    "values_of",
]
