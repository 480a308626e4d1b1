"""Finds why kube-scheduler can allocate no device for a resource name, so that pods that request it wait."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.requesting import taint_on_all
from dra.reason import Reason
from webhook import names
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from webhook.state import State
    from webhook.translate import Decision


_taint_on_all = lru_cache(maxsize=32)(taint_on_all)  # called for each pod of the input; a stock is compared by identity


def with_taint_finding(decision: Decision, state: State) -> Decision:
    """Return the decision, with the code D318 if a DeviceClass serves its key and all of its devices are tainted."""
    is_served = decision.outcome is Outcome.SERVED and not decision.code
    stranding = why_stranded(decision.key, state) if is_served else None
    if stranding is None or not stranding.code:
        return decision
    detail = f"{decision.detail}, {stranding.text}"
    return replace(decision, code=stranding.code, detail=detail, remedy=stranding.remedies[0])


def why_stranded(key: str, state: State) -> Reason | None:
    """Return why no pod gets a device by this resource name; None if a pod may get one, or the answer is not known."""
    fleet, stock = state.fleet, state.stock
    device_class = fleet.classes.get(fleet.extended.get(key, ""))
    if stock is None or device_class is None or fleet.handed_out_anywhere.get(key):
        return None
    if not device_class.devices:
        text = "and the class selects no device of a pool that can be used"
        remedies = ("install its driver, or correct the class's selectors",)
        causes = (f"DeviceClass/{device_class.name}",)
        return Reason(text=text, causes=causes, remedies=remedies) if stock.slices else None
    taint = _taint_on_all(stock, device_class.driver)
    if not taint or taint == names.FENCE:  # the webhook's verdict reports a fence
        return None
    text = f"but each device of {device_class.driver} has a taint, such as {taint}, that kube-scheduler's claims do not tolerate"
    remedies = ("remove the taints, or write claims that tolerate them",)
    return Reason(text=text, code="D318", causes=(f"Driver/{device_class.driver}",), remedies=remedies)
