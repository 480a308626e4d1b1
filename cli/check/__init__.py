"""What `drawbridge check` says, and how deep it looks."""

from __future__ import annotations

from cli.check import reports
from cli.check.feasible import lay_out_prospects, never
from cli.check.reports import Placed, page_of_codes

__all__ = ["Placed", "lay_out_prospects", "never", "page_of_codes", "reports"]
