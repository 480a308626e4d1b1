"""Which devices of a pool can be in use together, and which are held: the page Together of the dashboard, and its JSON."""

from analysis.matrix.fleet import PoolMatrix, build_matrices, group_equal, reachable
from analysis.matrix.matrix_report import report

__all__ = ["PoolMatrix", "build_matrices", "group_equal", "reachable", "report"]
