"""`drawbridge migrate`: the move from device plugins to DRA drivers, as a plan and as commits, and the checks of drivers before it."""

from analysis.migration import accept, accept_pods, status
from analysis.migration.chart_versions import newest
from analysis.migration.commits import (
    NOT_MOVED,
    message,
    not_moved,
    pull_request,
    uncompared_charts,
    without_failed_edits,
)
from analysis.migration.plan import MigrationPlan
from analysis.migration.planning import make_plan
from analysis.migration.pull_request import NewFile, Step, StepName
from analysis.migration.rendering import (
    ChangedRelease,
    changed_releases,
    loses_a_key,
    unplanned_changes,
)
from analysis.migration.report import changes, done, first_lines, report, summary, with_decisions

__all__ = [
    "NOT_MOVED",
    "ChangedRelease",
    "MigrationPlan",
    "NewFile",
    "Step",
    "StepName",
    "accept",
    "accept_pods",
    "changed_releases",
    "changes",
    "done",
    "first_lines",
    "loses_a_key",
    "make_plan",
    "message",
    "newest",
    "not_moved",
    "pull_request",
    "report",
    "status",
    "summary",
    "uncompared_charts",
    "unplanned_changes",
    "with_decisions",
    "without_failed_edits",
]
