"""`drawbridge survey`: the workloads that request devices in a cluster or a dump, the decision about each, and the obstacles."""

from analysis.survey.fleet import DriverStock, PluginStock
from analysis.survey.overview import Overview, SurveyScope, overview
from analysis.survey.rows import findings
from analysis.survey.survey_report import report
from analysis.survey.verdicts import MoveReason, with_all_drivers

__all__ = [
    "DriverStock",
    "MoveReason",
    "Overview",
    "PluginStock",
    "SurveyScope",
    "findings",
    "overview",
    "report",
    "with_all_drivers",
]
