"""How a machine is published: the slices of its pool, and the writes that lead there."""

from __future__ import annotations

from node.slices.pages import pages_of
from node.slices.plan import dropped, plan

__all__ = ["dropped", "pages_of", "plan"]
