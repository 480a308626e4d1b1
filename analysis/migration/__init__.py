"""`drawbridge migrate`: the move from device plugins to DRA drivers, as a plan and as commits, and the checks of drivers before it."""

from analysis.migration import accept, accept_pods
from analysis.migration.commits import NOT_MOVED, message, not_moved, pull_request, unrendered
from analysis.migration.plan import MigrationPlan
from analysis.migration.planning import make_plan
from analysis.migration.pull_request import NewFile, Step, StepName
from analysis.migration.report import changes, report, summary, with_decisions

__all__ = [
    "NOT_MOVED",
    "MigrationPlan",
    "NewFile",
    "Step",
    "StepName",
    "accept",
    "accept_pods",
    "changes",
    "make_plan",
    "message",
    "not_moved",
    "pull_request",
    "report",
    "summary",
    "unrendered",
    "with_decisions",
]
