"""`drawbridge doctor`: finds what is wrong in a cluster, with a remedy for each problem, and repairs some of the problems."""

from analysis.doctor.reading import of_dump, survey, survey_parts
from analysis.doctor.repair import describe, write_repair
from analysis.doctor.rules import RULES, NotChecked, diagnose, faults, not_checked

__all__ = [
    "RULES",
    "NotChecked",
    "describe",
    "diagnose",
    "faults",
    "not_checked",
    "of_dump",
    "survey",
    "survey_parts",
    "write_repair",
]
