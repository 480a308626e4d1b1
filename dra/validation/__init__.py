"""Rules about objects: what the API server refuses, and what will go wrong although it accepts it.

`problems` judges one object by itself, `update_errors` one that replaces another, `findings` names the object and adds severity and advice. What needs several objects
at once (pods and their claims, claims and the fleet, the slices of a pool) is in `dra.validation.fleet`.
"""

from dra import names
from dra.codes import CODES, FindingCode
from dra.validation.fields import gates, shape
from dra.validation.fleet.pools import find_incomplete
from dra.validation.objects.judge import errors, findings, problems, read_object
from dra.validation.objects.updates import update_errors
from dra.validation.parameters.entries import MAX_BYTES, parameter_problems, read_members
from dra.validation.parameters.reach import asks_for_channels, claim_settings
from dra.validation.review import misnamed_kind, name, review

__all__ = [
    "CODES",
    "MAX_BYTES",
    "FindingCode",
    "asks_for_channels",
    "claim_settings",
    "errors",
    "find_incomplete",
    "findings",
    "gates",
    "misnamed_kind",
    "name",
    "names",
    "parameter_problems",
    "problems",
    "read_members",
    "read_object",
    "review",
    "shape",
    "update_errors",
]
