"""Never, busy, fits: one answer about the claims of a pod and a fleet, in words. Pure.

"Never" is what an idle fleet would refuse as well, so waiting cannot cure it. It is said only where it is certain: a taint that
an admin set, a pool that a driver has not finished publishing, a fault in an object, or a search that ran out of budget make
it a "not now" at most.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from allocator import Options, Stage, allocate, explain, fleet
from allocator import Verdict as Found
from allocator.brief import losses
from allocator.nearest import Kind, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator import Answer, FleetAnswer
    from dra.claim import DeviceRequest, ResourceClaim
    from dra.stock import Stock

# About 50 ms of search on one kind of node: a review must be answered long before the API server gives up on us.
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
_OPTIONS = Options(steps=STEPS)


def judge(stock: Stock, claims: Sequence[ResourceClaim]) -> Judgement:
    """Say whether claims that belong to one pod can be served together on one node of this fleet."""
    for claim in claims:
        for request in claim.spec.devices.requests:
            if missing := _missing_classes(request, stock):
                return Judgement(Verdict.NEVER, _unknown_class(claim, request, missing, stock))
    if not stock.slices:
        return UNKNOWN  # no driver has spoken yet
    now = _best(fleet(stock, claims, options=_OPTIONS))
    if now is Found.FEASIBLE:
        return FITS
    return UNKNOWN if now is Found.UNDECIDED else _refused(stock, claims)


def _refused(stock: Stock, claims: Sequence[ResourceClaim]) -> Judgement:
    """Nothing fits now. Would it on an idle fleet?"""
    idle = fleet(stock, claims, options=_OPTIONS, idle=True)
    best = _best(idle)
    if best is Found.UNDECIDED:
        return UNKNOWN
    if best is Found.FEASIBLE:
        return Judgement(Verdict.BUSY, f"this pod waits until devices are free: {_busy(stock, claims, idle)}")
    samples = dict(list(idle.samples().items())[:KINDS])
    faults = [answer.error for answer in samples.values() if answer.error]
    if faults:
        return Judgement(Verdict.BUSY, f"the scheduler would stop at an error: {faults[0]}")
    stages = {reason.stage for answer in samples.values() for reason in answer.reasons}
    if stages & CURABLE or not samples:
        return Judgement(Verdict.BUSY, f"no node can serve this pod as the fleet is now ({_kinds(stock, claims)})")
    node, answer = min(samples.items(), key=lambda item: explain.distance(item[1]))
    return Judgement(Verdict.NEVER, _never(stock, claims, node, answer, nodes=len(idle)))


def _never(stock: Stock, claims: Sequence[ResourceClaim], node: str, answer: Answer, *, nodes: int) -> str:
    offer = _offer(stock, claims, node)
    text = f"none of {nodes} nodes could serve this pod even if idle. Nearest is {node}: {losses(answer)}"
    return f"{text}. Nearest fit: {offer}" if offer else text


def _busy(stock: Stock, claims: Sequence[ResourceClaim], idle: FleetAnswer) -> str:
    """What is in the way on the nodes that could serve the claims if they were idle."""
    able = idle.feasible[:KINDS]
    now = fleet(stock, claims, options=_OPTIONS)
    node = min(able, key=lambda one: explain.distance(now[one]))
    others = len(idle.feasible) - 1
    return f"on {node} {losses(now[node])}" + (f", and so on {others} more" if others else "")


def _offer(stock: Stock, claims: Sequence[ResourceClaim], node: str) -> str:
    def fits(one: Stock, some: Sequence[ResourceClaim]) -> bool:
        return allocate(one, node, some, options=_OPTIONS).feasible

    hints = nearest(stock, node, claims, fits=fits, tries=TRIES)
    return next((hint.text.removesuffix(" now") for kind in OFFERS for hint in hints if hint.kind is kind), "")


def _kinds(stock: Stock, claims: Sequence[ResourceClaim]) -> str:
    samples = fleet(stock, claims, options=_OPTIONS).samples()
    return explain.tally(dict(list(samples.items())[:KINDS]))


def _best(answers: FleetAnswer) -> Found:
    """The best that any node says. One that fits ends the look: of 5,000 nodes most do most of the time."""
    undecided = False
    for node in answers:
        verdict = answers.verdict(node)
        if verdict is Found.FEASIBLE:
            return verdict
        undecided = undecided or verdict is Found.UNDECIDED
    return Found.UNDECIDED if undecided else Found.INFEASIBLE


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
