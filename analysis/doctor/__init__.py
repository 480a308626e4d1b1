"""What is wrong in a cluster, each with its remedy, and which of it can be repaired: `drawbridge doctor`."""

from analysis.doctor.reading import read_dump, survey, survey_parts
from analysis.doctor.repair import describe, write_repair
from analysis.doctor.rules import RULES, NotChecked, diagnose, not_checked

__all__ = [
    "RULES",
    "NotChecked",
    "describe",
    "diagnose",
    "not_checked",
    "read_dump",
    "survey",
    "survey_parts",
    "write_repair",
]
