"""The first event in in-tree order, without the dead ends, within a budget."""

from allocator.search.budget import MICROSECONDS
from allocator.search.walk import Cuts, Walk

__all__ = ["MICROSECONDS", "Cuts", "Walk"]
