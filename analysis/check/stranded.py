"""What keeps kube-scheduler from every device that serves a resource name, so that a pod which asks by it waits. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dra.objects import blocks
from webhook import names
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from dra.stock import Stock
    from webhook.state import State
    from webhook.translate import Decision


class Stranding(NamedTuple):
    """Why a name is not served, what has to change, and what to do about it."""

    reason: str
    until: str
    remedy: str
    taint: str = ""  # which all its devices have


def with_taint_finding(decision: Decision, state: State) -> Decision:
    """Return the decision; as a finding (D318) if core serves its key, by devices that are all tainted."""
    is_served = decision.outcome is Outcome.SERVED and not decision.code
    stranding = why_stranded(decision.key, state) if is_served else None
    if stranding is None or not stranding.taint:
        return decision
    return replace(decision, code="D318", detail=f"{decision.detail}, {stranding.reason}", remedy=stranding.remedy)


def why_stranded(key: str, state: State) -> Stranding | None:
    """Say why no pod is given a device by a name; None if one may be, or that is not known."""
    fleet, stock = state.fleet, state.stock
    served = fleet.classes.get(fleet.extended.get(key, ""))
    if stock is None or served is None or fleet.handed_out_anywhere.get(key):
        return None
    if not served.devices:
        reason = "and the class selects no device of a pool that can be used"
        until = f"DeviceClass {served.name} has devices"
        return (
            Stranding(reason, until, "install its driver, or correct the class's selectors") if stock.slices else None
        )
    taint = _taint_on_all(stock, served.driver)
    if not taint or taint == names.FENCE:  # of a fence the webhook's own verdict tells
        return None
    reason = f"but all devices of {served.driver} have the taint {taint}, which kube-scheduler's claims do not tolerate"
    until = f"a device of {served.driver} is without taint {taint}"
    return Stranding(reason, until, "remove the taint, or write claims that tolerate it", taint)


@lru_cache(maxsize=32)  # each pod of the input asks; a stock is itself alone
def _taint_on_all(stock: Stock, driver: str) -> str:
    """Name a taint that keeps claims from a device of a driver, if each of its devices has one; else ""."""
    shared = ""
    for page in stock.every_newest_page():
        for device in page.devices if page.slice.spec.driver == driver else ():
            taint = next((taint.key for taint in device.taints if blocks(taint, ())), "")
            if not taint:
                return ""
            shared = shared or taint
    return shared
