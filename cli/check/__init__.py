"""What `drawbridge check` says, and how deep it looks."""

from __future__ import annotations

from cli.check import reports
from cli.check.feasible import declared, never
from cli.check.reports import Placed, page_of_codes

__all__ = ["Placed", "declared", "never", "page_of_codes", "reports"]
