"""Why a pod can be turned back: a stable code for each reason, and the one way in which it is said.

A code never changes its meaning (docs/translation.md lists them). The same refusal reads the same at the gate, in a warning about a
workload, and on the command line. What is only busy now is not a refusal, and has no code.
"""

from __future__ import annotations

from enum import StrEnum

from webhook import names


class Code(StrEnum):
    """What a refusal is about."""

    AMOUNT = "R001"  # not an amount that the API server takes
    RANGE = "R002"  # an amount that the legacy system does not take
    MIXED = "R003"  # keys of two systems
    RULE = "R004"  # the legacy system would refuse it
    INEXPRESSIBLE = "R005"  # no claim says it
    SIZES = "R006"  # a share of a size that nobody knows
    SCHEDULER = "R007"  # the pod's scheduler would misread the claim
    JOINT = "R008"  # two counts that do not pair
    POD_LIMIT = "R009"  # more devices than a pod may have
    TWICE = "R010"  # asked for again after it was translated
    TAKEN = "R011"  # a template's name holds something else
    NEVER = "R020"  # no node could serve it, even if idle
    NO_CLASS = "R021"  # a DeviceClass that does not exist
    NO_DEVICE = "R022"  # no device matches what was asked for
    TOO_MANY = "R023"  # more devices than any node has
    OBJECT = "R030"  # an object of ours with a mistake in it


# What the API server would have answered with 422.
INVALID = frozenset((Code.AMOUNT,))
WAY_OUT = f"to pass drawbridge by, label the pod {names.SKIP_LABEL}=true"


def sentence(code: str, what: str, remedy: str = "") -> str:
    """Say one refusal."""
    helps = f" ({remedy})" if remedy else ""
    return f"{what}{helps} [{code}]"
