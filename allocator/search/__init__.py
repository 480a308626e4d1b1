"""The first event in in-tree order, without the dead ends, within a budget."""

from __future__ import annotations

from allocator.search.walk import Budget, Cuts, Walk

__all__ = ["Budget", "Cuts", "Walk"]
