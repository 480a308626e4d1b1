"""Never, busy, fits: one answer about the claims of a pod and a fleet, in words. Pure.

"Never" is what an idle fleet would refuse as well, so waiting cannot cure it. It is said only where it is certain: a taint that
an admin set, a pool that a driver has not finished publishing, a fault in an object, or a search that ran out of budget make
it a "not now" at most.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from allocator import Options, Stage, allocate, fleet
from allocator import Verdict as Found
from allocator.reasons import explain
from allocator.reasons.brief import losses
from allocator.reasons.nearest import Kind, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator import FleetAnswer
    from dra.objects import DeviceRequest, ResourceClaim
    from dra.stock import Stock

# About 50 ms of search on one kind of node; the caller's patience bounds all of them together.
STEPS = 3_000
# Changes tried for "what would fit instead".
TRIES = 40
# Kinds of node whose answers are compared; a fleet has few, and a refusal need not be told from all sides.
KINDS = 16
CURABLE = frozenset((Stage.TAINT, Stage.POOL))
# What may be offered to somebody who writes a pod: other numbers, not other people's claims.
OFFERS = (Kind.AMOUNT, Kind.COUNT, Kind.SPLIT, Kind.CLASS, Kind.SELECTOR, Kind.CONSTRAINT)


class Verdict(Enum):
    NEVER = "never"
    BUSY = "busy"
    FITS = "fits"
    UNKNOWN = "unknown"  # the budget ran out: nothing is promised either way


class Judgement(msgspec.Struct, frozen=True):
    """A verdict, and for NEVER and BUSY the reason and what would fit."""

    verdict: Verdict
    text: str = ""


FITS = Judgement(Verdict.FITS)
UNKNOWN = Judgement(Verdict.UNKNOWN)


def judge(stock: Stock, claims: Sequence[ResourceClaim], *, impatient: Callable[[], bool] | None = None) -> Judgement:
    """Say whether claims that belong to one pod can be served together on one node of this fleet.

    `impatient` is asked now and then whether the caller can still wait; if not, nothing is promised.
    """
    for claim in claims:
        for request in claim.spec.devices.requests:
            if missing := _missing_classes(request, stock):
                return Judgement(Verdict.NEVER, _unknown_class(claim, request, missing, stock))
    if not stock.slices:
        return UNKNOWN  # no driver has spoken yet
    question = _Question(stock, claims, Options(steps=STEPS, cancelled=impatient))
    best = question.best(idle=False)
    if best is Found.FEASIBLE:
        return FITS
    return UNKNOWN if best is Found.UNDECIDED else question.refused()


class _Question:
    """Claims that nothing free serves, or so it seems; and who is asked about them."""

    def __init__(self, stock: Stock, claims: Sequence[ResourceClaim], options: Options) -> None:
        self.stock, self.claims, self.options = stock, claims, options

    def answers(self, *, idle: bool) -> FleetAnswer:
        return fleet(self.stock, self.claims, options=self.options, idle=idle)

    def best(self, *, idle: bool) -> Found:
        """The best that any node says. One that fits ends the look: of 5,000 nodes most do most of the time."""
        answers, undecided = self.answers(idle=idle), False
        for node in answers:
            verdict = answers.verdict(node)
            if verdict is Found.FEASIBLE:
                return verdict
            undecided = undecided or verdict is Found.UNDECIDED
        return Found.UNDECIDED if undecided else Found.INFEASIBLE

    def refused(self) -> Judgement:
        """Nothing fits now. Would it on an idle fleet?"""
        best = self.best(idle=True)
        if best is Found.UNDECIDED:
            return UNKNOWN
        if best is Found.FEASIBLE:
            return Judgement(Verdict.BUSY, f"this pod waits until devices are free: {self.busy()}")
        samples = dict(list(self.answers(idle=True).samples().items())[:KINDS])
        faults = [answer.error for answer in samples.values() if answer.error]
        if faults:
            return Judgement(Verdict.BUSY, f"the scheduler would stop at an error: {faults[0]}")
        node, answer = min(samples.items(), key=lambda item: explain.distance(item[1]), default=("", None))
        if answer is None:
            return Judgement(Verdict.BUSY, "there is no node that could serve this pod")
        near = f"nearest is {node}: {losses(answer)}"
        if CURABLE & {reason.stage for sample in samples.values() for reason in sample.reasons}:
            return Judgement(Verdict.BUSY, f"no node can serve this pod as the fleet is now; {near}")
        return Judgement(Verdict.NEVER, self.never(node, near))

    def never(self, node: str, near: str) -> str:
        text = f"none of {len(self.stock.nodes)} nodes could serve this pod even if idle; {near}"
        offer = self.offer(node)
        return f"{text}. Nearest fit: {offer}" if offer else text

    def busy(self) -> str:
        """What is in the way on the nodes that could serve the claims if they were idle."""
        able, now = self.answers(idle=True).feasible, self.answers(idle=False)
        node = min(able[:KINDS], key=lambda one: explain.distance(now[one]))
        others = f", and so on {len(able) - 1} more" if len(able) > 1 else ""
        return f"on {node} {losses(now[node])}{others}"

    def offer(self, node: str) -> str:
        """What would fit instead: an amount or a count that was tried and fits."""

        def fits(stock: Stock, claims: Sequence[ResourceClaim]) -> bool:
            patience = self.options.cancelled
            return not (patience and patience()) and allocate(stock, node, claims, options=self.options).feasible

        hints = nearest(self.stock, node, self.claims, fits=fits, tries=TRIES)
        text = next((hint.text for kind in OFFERS for hint in hints if hint.kind is kind), "")
        return text.removesuffix(" now") if text.startswith("on an idle") else text


def _missing_classes(request: DeviceRequest, stock: Stock) -> list[str]:
    """Classes that do not exist, if no alternative is left without them."""
    if request.exactly is not None:
        name = request.exactly.device_class_name
        return [] if name in stock.classes else [name]
    names = [sub.device_class_name for sub in request.first_available]
    return names if names and all(name not in stock.classes for name in names) else []


def _unknown_class(claim: ResourceClaim, request: DeviceRequest, missing: Sequence[str], stock: Stock) -> str:
    known = ", ".join(sorted(stock.classes)) or "none at all"
    return f"claim {claim.metadata.name}, request {request.name}: there is no DeviceClass {' or '.join(missing)}; there is {known}"
