"""The findings of `drawbridge check` beyond `dra.validation`."""

from analysis.check.decisions import (
    add_webhook_findings,
    finding_of,
    findings_of_decisions,
    findings_of_skipped,
    locate,
    name_placeholders,
)
from analysis.check.feasible import find_unservable, prospective_nodes
from analysis.check.stranded import why_stranded, with_taint_finding

__all__ = [
    "add_webhook_findings",
    "find_unservable",
    "finding_of",
    "findings_of_decisions",
    "findings_of_skipped",
    "locate",
    "name_placeholders",
    "prospective_nodes",
    "why_stranded",
    "with_taint_finding",
]
