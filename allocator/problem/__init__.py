"""Claims and devices become integers: the question, what each device is to it, and who holds what."""

from __future__ import annotations

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
from allocator.problem.compiler import Compiler
from allocator.problem.occupancy import PoolState, pool_state
from allocator.problem.packing import bitset, members, spans, union
from allocator.problem.problem import Item, Problem, Unit, Value
from allocator.problem.question import MAX_RESULTS, Leaf, Question, claim_key, question_of

__all__ = [
    "MAX_RESULTS",
    "OPTIONAL_OPERATIONS",
    "Candidate",
    "Compiler",
    "Fault",
    "Item",
    "Judge",
    "Judgement",
    "Leaf",
    "Offer",
    "PoolState",
    "Problem",
    "Question",
    "Refused",
    "Unit",
    "Value",
    "Values",
    "bitset",
    "candidates_of",
    "claim_key",
    "members",
    "pool_state",
    "question_of",
    "spans",
    "union",
    "values_of",
]
