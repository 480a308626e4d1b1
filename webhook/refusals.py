"""Why a pod can be turned back: a stable code for each reason, and the one way in which it is worded.

A code never changes its meaning. A request that only claims cannot serve is left, not refused: R003 and R009 meant such things, and are not
used again. The same refusal reads the same at the webhook, in a warning about a workload, and on the command line. A device that is only busy
now is not a refusal, and has no code.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dra.finding import Finding


class Code(StrEnum):
    """What a refusal is about."""

    AMOUNT = "R001"
    RANGE = "R002"
    RULE = "R004"
    INEXPRESSIBLE = "R005"
    SIZES = "R006"
    SCHEDULER = "R007"
    JOINT = "R008"
    TWICE = "R010"
    TAKEN = "R011"
    NEVER = "R020"
    NO_CLASS = "R021"
    NO_DEVICE = "R022"
    TOO_MANY = "R023"
    OBJECT = "R030"


# Every code of a refusal.
REFUSALS = frozenset[str](Code)
# An amount that is no quantity: the API server cannot decode the pod, so it asks no webhook.
UNREADABLE: Final = "D001"
# An amount that is still to be filled in.
UNFILLED: Final = "D011"
# What the API server refuses by itself.
INVALID = frozenset[str]((Code.AMOUNT, UNREADABLE, UNFILLED))


def none_could(nodes: int, subject: str, *, reached: bool = False) -> str:
    """Begin the refusal of what no node could serve, or none of those that it can reach."""
    which, pronoun = (f" that this {subject} can run on", "it") if reached else ("", f"this {subject}")
    no_node = f"the only node{which} could not" if nodes == 1 else f"none of {nodes} nodes{which} could"
    return f"{no_node} serve {pronoun} even if idle"


Warned = str | Finding
