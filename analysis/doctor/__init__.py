"""What is wrong in a cluster, each with its remedy, and which of it can be repaired: `drawbridge doctor`."""

from analysis.doctor.diagnosis import diagnose
from analysis.doctor.reading import read_dump, survey, survey_parts
from analysis.doctor.repair import describe, write_repair

__all__ = ["describe", "diagnose", "read_dump", "survey", "survey_parts", "write_repair"]
