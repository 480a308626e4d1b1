"""`drawbridge doctor`: finds what is wrong in a cluster, with a remedy for each problem, and repairs some of the problems."""

from analysis.doctor.doctor_reading import of_dump, survey, survey_parts
from analysis.doctor.doctor_rules import RULES, diagnose, faults
from analysis.doctor.observed import DoctorInput
from analysis.doctor.repair import describe, write_repair

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
