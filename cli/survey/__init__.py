"""`drawbridge survey`: which workloads ask for devices in a cluster or a dump, what becomes of each, and what is in the way."""

from __future__ import annotations

from cli.survey.command import FORMS
from cli.survey.command import command as survey
from cli.survey.overview import Overview, Scope, overview
from cli.survey.verdicts import Foreteller, Outlook

__all__ = ["FORMS", "Foreteller", "Outlook", "Overview", "Scope", "overview", "survey"]
