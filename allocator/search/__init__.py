"""Finds the answer of the in-tree allocator within a budget, without searching the dead ends that the in-tree allocator searches."""

from allocator.search.budget import MICROSECONDS
from allocator.search.walk import Cuts, Walk

__all__ = ["MICROSECONDS", "Cuts", "Walk"]
