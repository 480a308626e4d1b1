"""Finds the in-tree allocator's answer within a budget, without its dead ends."""

from allocator.search.budget import MICROSECONDS
from allocator.search.walk import Cuts, Walk

__all__ = ["MICROSECONDS", "Cuts", "Walk"]
