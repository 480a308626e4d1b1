"""The codes of refusals.

A code never changes its meaning. R003 and R009 are retired and are not assigned again. If no claim can
serve a pod but a device plugin may serve it, the webhook does not refuse the pod, and the keys stay on it. It does not refuse a pod whose
devices are in use either: such a pod waits.
"""

from __future__ import annotations

import re
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
    QUOTA = "R024"
    OBJECT = "R030"


REFUSALS = frozenset[str](Code)
# For an amount that is not a quantity. The API server cannot decode such a pod, so it calls no webhook.
UNREADABLE: Final = "D001"
# For an amount that is a placeholder of a template engine.
UNFILLED: Final = "D011"
# Codes of objects that the API server refuses too.
INVALID = frozenset[str]((Code.AMOUNT, UNREADABLE, UNFILLED))
# For what the cluster lacks and an administrator can provide: sizes of devices, a DeviceClass, devices.
LACKING = frozenset[str]((Code.SIZES, Code.NO_CLASS, Code.NO_DEVICE))
_WRITTEN = re.compile(r"\[(R\d+)\]")


def codes_in(text: str) -> list[str]:
    """Return the codes of the refusals in an answer of the webhook."""
    return _WRITTEN.findall(text)


def none_could(nodes: int, subject: str, *, reached: bool = False) -> str:
    """Return the beginning of a refusal's message: none of `nodes` nodes can serve the subject.

    `reached` means that only nodes that the subject can run on were counted.
    """
    qualifier, pronoun = (f" that this {subject} can run on", "it") if reached else ("", f"this {subject}")
    no_node = f"the only node{qualifier} cannot" if nodes == 1 else f"none of the {nodes} nodes{qualifier} can"
    return f"{no_node} serve {pronoun}, even with all devices free"


Warned = str | Finding
