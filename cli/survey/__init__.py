"""`drawbridge survey`: which workloads ask for devices in a cluster or a dump, what becomes of each, and what is in the way."""

from cli.survey.fleet import DriverStock, PluginStock
from cli.survey.overview import MoveReason, Overview, SurveyScope, overview
from cli.survey.reading import read_cluster
from cli.survey.report import report
from cli.survey.rows import findings, table
from cli.survey.screen import screen

__all__ = [
    "DriverStock",
    "MoveReason",
    "Overview",
    "PluginStock",
    "SurveyScope",
    "findings",
    "overview",
    "read_cluster",
    "report",
    "screen",
    "table",
]
