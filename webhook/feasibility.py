"""Never, busy, fits: one answer about claims and a fleet, in words. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from dra.claim import DeviceRequest, ResourceClaim
    from dra.stock import Stock


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


def judge(stock: Stock, claims: tuple[ResourceClaim, ...]) -> Judgement:
    """Say whether claims that belong to one pod can be served on one node of this fleet."""
    for claim in claims:
        for request in claim.spec.devices.requests:
            missing = _missing_classes(request, stock)
            if missing:
                return Judgement(Verdict.NEVER, _unknown_class(claim, request, missing, stock))
    return FITS


def _missing_classes(request: DeviceRequest, stock: Stock) -> list[str]:
    """Classes that do not exist, if no alternative is left without them."""
    if request.exactly is not None:
        name = request.exactly.device_class_name
        return [] if name in stock.classes else [name]
    names = [sub.device_class_name for sub in request.first_available]
    return names if names and all(name not in stock.classes for name in names) else []


def _unknown_class(claim: ResourceClaim, request: DeviceRequest, missing: list[str], stock: Stock) -> str:
    known = ", ".join(sorted(stock.classes)) or "none at all"
    return f"claim {claim.metadata.name}, request {request.name}: there is no DeviceClass {' or '.join(missing)}; there is {known}"
