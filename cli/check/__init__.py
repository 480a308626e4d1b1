"""What `drawbridge check` says, and how deep it looks."""

from __future__ import annotations

from cli.check import reports
from cli.check.explain import explain_codes
from cli.check.feasible import lay_out_prospects, never
from cli.check.gate import at_the_gate
from cli.check.moves import place, place_decisions
from cli.check.reports import Placed

__all__ = [
    "Placed",
    "at_the_gate",
    "explain_codes",
    "lay_out_prospects",
    "never",
    "place",
    "place_decisions",
    "reports",
]
