"""`drawbridge survey`: which workloads ask for devices in a cluster or a dump, what becomes of each, and what is in the way."""

from analysis.survey.fleet import DriverStock, PluginStock
from analysis.survey.overview import Overview, SurveyScope, overview
from analysis.survey.report import report
from analysis.survey.rows import findings, table
from analysis.survey.verdicts import MoveReason

__all__ = [
    "DriverStock",
    "MoveReason",
    "Overview",
    "PluginStock",
    "SurveyScope",
    "findings",
    "overview",
    "report",
    "table",
]
