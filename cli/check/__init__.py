"""The findings of `drawbridge check` beyond `dra.validation`, and their output formats."""

from cli.check import reports
from cli.check.decisions import (
    add_webhook_findings,
    findings_of_decisions,
    findings_of_skipped,
    locate,
    name_placeholders,
)
from cli.check.feasible import find_unservable, prospective_nodes
from cli.check.reports import ObjectFindings, explain_codes
from cli.check.stranded import why_stranded, with_taint_finding

__all__ = [
    "ObjectFindings",
    "add_webhook_findings",
    "explain_codes",
    "find_unservable",
    "findings_of_decisions",
    "findings_of_skipped",
    "locate",
    "name_placeholders",
    "prospective_nodes",
    "reports",
    "why_stranded",
    "with_taint_finding",
]
