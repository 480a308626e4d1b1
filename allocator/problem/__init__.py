"""Claims and devices become integers: the question, what each device is to it, and who holds what."""

from __future__ import annotations

from allocator.problem.attributes import PageCache
from allocator.problem.cache import CompileCache
from allocator.problem.candidates import (
    OPTIONAL_OPERATIONS,
    Candidate,
    Fault,
    Judge,
    Judgement,
    Offer,
    Refused,
    Values,
    candidates_of,
    values_of,
)
from allocator.problem.compiler import compile  # noqa: A004  the verb for what it does
from allocator.problem.disjoint import Disjoint
from allocator.problem.occupancy import PoolState, Vicinity, pool_state
from allocator.problem.packing import bitset, members, spans, union
from allocator.problem.problem import Item, Problem, Unit, Value
from allocator.problem.question import MAX_RESULTS, Leaf, Question, question_of

__all__ = [
    "MAX_RESULTS",
    "OPTIONAL_OPERATIONS",
    "Candidate",
    "CompileCache",
    "Disjoint",
    "Fault",
    "Item",
    "Judge",
    "Judgement",
    "Leaf",
    "Offer",
    "PageCache",
    "PoolState",
    "Problem",
    "Question",
    "Refused",
    "Unit",
    "Value",
    "Values",
    "Vicinity",
    "bitset",
    "candidates_of",
    "compile",
    "members",
    "pool_state",
    "question_of",
    "spans",
    "union",
    "values_of",
]
