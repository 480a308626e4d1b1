"""The codes of refusals.

A code never changes its meaning. R003 and R009 are retired and are not assigned again. If no claim, but perhaps a device plugin
can serve a pod, the webhook leaves the keys and does not refuse the pod. A pod whose devices are in use is not refused either: it waits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from dra.finding import Finding


class Code(StrEnum):
    """The reason of a refusal."""

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
# An amount that is not a quantity: the API server cannot decode the pod, so it calls no webhook.
UNREADABLE: Final = "D001"
# An amount that is a placeholder of a template engine.
UNFILLED: Final = "D011"
# Codes of objects that the API server refuses too.
INVALID = frozenset[str]((Code.AMOUNT, UNREADABLE, UNFILLED))


# The end of every text that `none_could` returns.
EVEN_IF_FREE: Final = ", even with all devices free"


def none_could(nodes: int, subject: str, *, reached: bool = False) -> str:
    """Return the beginning of a refusal: no node, or none of the nodes that the pod can run on, can serve it."""
    which, pronoun = (f" that this {subject} can run on", "it") if reached else ("", f"this {subject}")
    no_node = f"the only node{which} cannot" if nodes == 1 else f"none of the {nodes} nodes{which} can"
    return f"{no_node} serve {pronoun}{EVEN_IF_FREE}"


Warned = str | Finding
