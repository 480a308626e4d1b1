"""Rules about objects: what the API server refuses, and what it accepts although it will not work.

`problems` judges one object, and `update_errors` judges the update of an object. `findings` sets the field `object` of findings. Rules
about several objects (pods and their claims, claims and published devices, the slices of a pool) are in `dra.validation.fleet`.
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
