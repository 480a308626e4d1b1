"""The findings of `drawbridge check` beyond `dra.validation`, and their output formats."""

from analysis.check.checked import check_input, separate
from analysis.check.decisions import finding_of, findings_of_decisions, findings_of_skipped, locate
from analysis.check.stranded import why_stranded

__all__ = [
    "check_input",
    "finding_of",
    "findings_of_decisions",
    "findings_of_skipped",
    "locate",
    "separate",
    "why_stranded",
]
