"""Why a pod can be turned back: a stable code for each reason, and the one way in which it is worded.

A code never changes its meaning. A request that only claims cannot serve is left, not refused: R003 and R009 meant such things, and are not
used again. The same refusal reads the same at the webhook, in a warning about a workload, and on the command line. A device that is only busy
now is not a refusal, and has no code.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from dra.finding import Severity
from dra.validation import CODES, FindingCode


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


def _page(title: str, helps: str, without: str) -> FindingCode:
    return FindingCode(title, Severity.ERROR, helps, without)


# What each is about, what generally helps, and what becomes of the pod without us: `drawbridge explain`, docs/findings.md.
PAGES: Final[dict[str, FindingCode]] = {
    Code.AMOUNT: CODES[Code.AMOUNT],
    Code.RANGE: _page("an amount that the legacy system does not accept", "stay in the range that the message gives, in its unit", "the legacy system's webhook or scheduler refuses it, or it gets no device"),
    Code.RULE: _page("the legacy system would refuse it", "see the message", "the legacy system's webhook or scheduler refuses it, or it gets no device"),
    Code.INEXPRESSIBLE: _page("a ResourceClaim cannot express this, and policy says refuse", "request less, or have it left", "it might run; `numaBind: refuse` requests the refusal"),
    Code.SIZES: _page("the device size is not known, so the percentage cannot be resolved, and policy says refuse", "an administrator can declare the sizes under `models`, or set `unresolved: leave`", "it might run; `unresolved: refuse` requests the refusal"),
    Code.SCHEDULER: _page("the pod's scheduler would misread the claim", "name a scheduler that serves claims", "it might run; `notUnderstood: refuse` requests the refusal"),
    Code.JOINT: _page("one count must be a multiple of the other", "request counts of which one divides the other", "it might run; `otherwise: refuse` requests the refusal"),
    Code.TWICE: _page("requested again after it was translated", "disable the webhook that restores the key", "it would run with its devices requested twice, and a claim cannot be withdrawn then"),
    Code.TAKEN: _page("the template that the pod needs does not match its name", "delete it, or ask who made it", "it would run with what that template requests"),
    Code.NEVER: _page("no node could serve the pod, even if nothing were in use", "take the nearest fit that the message names", "it waits, as no node publishes the devices, or offers enough of its keys"),
    Code.NO_CLASS: _page("a DeviceClass that does not exist", "name one that exists, or ask an administrator to install the driver that provides it", "it waits, as no node publishes the devices"),
    Code.NO_DEVICE: _page("no device matches what was requested: a product or a profile that does not exist", "request one of those that the message lists", "it waits, as no node publishes the devices"),
    Code.TOO_MANY: _page("more devices than any node has", "request no more than the largest node has, or split the pod", "it waits, as no node publishes that many, or offers enough of its keys"),
    Code.OBJECT: _page("an invalid object of a drawbridge kind", "do what the finding says", "it is stored, and its invalid parts have no effect"),
}  # fmt: skip
# What the API server would have answered with 422.
INVALID = frozenset((Code.AMOUNT,))


class Denial(msgspec.Struct, frozen=True, gc=False):
    """One refusal, with its code and what helps. Only the writers of answers, logs and screens make text of it."""

    code: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        helps = f" ({self.remedy})" if self.remedy else ""
        return f"{self.text}{helps} [{self.code}]"

    def prefixed(self, opening: str) -> Denial:
        """Put an opening before the text, for a warning."""
        return msgspec.structs.replace(self, text=f"{opening}{self.text}")


def none_could(nodes: int, subject: str, *, reached: bool = False) -> str:
    """Begin the refusal of what no node could serve, or none of those that it can reach."""
    which, pronoun = (f" that this {subject} can run on", "it") if reached else ("", f"this {subject}")
    no_node = f"the only node{which} could not" if nodes == 1 else f"none of {nodes} nodes{which} could"
    return f"{no_node} serve {pronoun} even if idle"


Warned = str | Denial
