"""`drawbridge doctor`: finds what is wrong in a cluster, with a remedy for each problem, and repairs some of the problems."""

from analysis.doctor.observed import DoctorInput
from analysis.doctor.reading import of_dump, survey, survey_parts
from analysis.doctor.repair import describe, write_repair
from analysis.doctor.rules import RULES, diagnose, faults

__all__ = [
    "RULES",
    "DoctorInput",
    "describe",
    "diagnose",
    "faults",
    "of_dump",
    "survey",
    "survey_parts",
    "write_repair",
]
