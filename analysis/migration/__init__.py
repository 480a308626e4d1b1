"""`drawbridge migrate`: the plan of a move from device plugins to DRA drivers."""

from analysis.migration.plan import MigrationPlan, make_plan
from analysis.migration.report import changes, report

__all__ = ["MigrationPlan", "changes", "make_plan", "report"]
