"""What `drawbridge check` says, and how deep it looks."""

from __future__ import annotations

from cli.check import reports
from cli.check.decisions import at_the_webhook, place, place_decisions
from cli.check.feasible import lay_out_prospects, never
from cli.check.passed_by import name_placeholders, say, sort_out
from cli.check.reports import Placed, explain_codes

__all__ = [
    "Placed",
    "at_the_webhook",
    "explain_codes",
    "lay_out_prospects",
    "name_placeholders",
    "never",
    "place",
    "place_decisions",
    "reports",
    "say",
    "sort_out",
]
