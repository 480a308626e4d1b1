"""`drawbridge matrix`: which devices can be in use together, in a fleet, a dump or a few slices, and which are held."""

from analysis.matrix.drawing import draw
from analysis.matrix.fleet import PoolMatrix, group_equal, judge, reachable
from analysis.matrix.report import report

__all__ = ["PoolMatrix", "draw", "group_equal", "judge", "reachable", "report"]
