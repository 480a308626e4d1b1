"""`drawbridge survey`: which workloads ask for devices in a cluster or a dump, what becomes of each, and what is in the way."""

from __future__ import annotations

from cli.survey.overview import Overview, SurveyScope, overview
from cli.survey.report import report
from cli.survey.rows import findings, table
from cli.survey.screen import screen
from cli.survey.verdicts import Foreteller, Outlook

__all__ = ["Foreteller", "Outlook", "Overview", "SurveyScope", "findings", "overview", "report", "screen", "table"]
