"""What is wrong in a cluster, each with its remedy, and what of it can be put right: `drawbridge doctor`."""

from __future__ import annotations

from cli.doctor.diagnosis import Ill, Seen, diagnose, with_identity
from cli.doctor.repair import describe, put_right
from cli.doctor.survey import find_sides, find_unasked, find_worn, survey

__all__ = [
    "Ill",
    "Seen",
    "describe",
    "diagnose",
    "find_sides",
    "find_unasked",
    "find_worn",
    "put_right",
    "survey",
    "with_identity",
]
