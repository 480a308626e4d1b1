"""`drawbridge matrix`: which devices can be in use together, in a fleet, a dump or a few slices, and which are held."""

from cli.matrix.drawing import draw
from cli.matrix.fleet import PoolMatrix, group_equal, judge, reachable
from cli.matrix.report import report
from cli.matrix.text import lines

__all__ = ["PoolMatrix", "draw", "group_equal", "judge", "lines", "reachable", "report"]
