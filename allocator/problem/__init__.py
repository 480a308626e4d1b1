"""Compiles claims, devices and their use into integers for the search."""

from allocator.problem.attributes import PageCache, Signature, numbered, selector_results, signature_of
from allocator.problem.cache import CompileCache
from allocator.problem.candidates import (
    NODE_FEATURE,
    DeviceCandidate,
    DeviceJudge,
    DeviceJudgement,
    Fault,
    Offer,
    RejectedDevice,
    Values,
    candidates_of,
    values_of,
)
from allocator.problem.compiler import compile  # noqa: A004  the verb for what it does
from allocator.problem.occupancy import PoolState, Vicinity, pool_state
from allocator.problem.problem import PlacedUnit, SearchInput, Value
from allocator.problem.question import Leaf, Question, question_of

__all__ = [
    "NODE_FEATURE",
    "CompileCache",
    "DeviceCandidate",
    "DeviceJudge",
    "DeviceJudgement",
    "Fault",
    "Leaf",
    "Offer",
    "PageCache",
    "PlacedUnit",
    "PoolState",
    "Question",
    "RejectedDevice",
    "SearchInput",
    "Signature",
    "Value",
    "Values",
    "Vicinity",
    "candidates_of",
    "compile",
    "numbered",
    "pool_state",
    "question_of",
    "selector_results",
    "signature_of",
    "values_of",
]
