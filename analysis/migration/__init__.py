"""`drawbridge migrate`: the move from device plugins to DRA drivers, as a plan and as commits, and the checks of drivers before it."""

from analysis.migration import accept, accept_pods, commits, rendering, report, status
from analysis.migration.chart_versions import newest
from analysis.migration.plan import MigrationPlan
from analysis.migration.planning import make_plan
from analysis.migration.pull_request import NewFile, Step, StepName

__all__ = [
    "MigrationPlan",
    "NewFile",
    "Step",
    "StepName",
    "accept",
    "accept_pods",
    "commits",
    "make_plan",
    "newest",
    "rendering",
    "report",
    "status",
]
