"""What keeps kube-scheduler from every device that serves a resource name, so that a pod which asks by it waits. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dra.objects import blocks
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Collection

    from dra.stock import Stock
    from webhook.state import State


class Stranding(NamedTuple):
    """Why a name is not served, and what to do about it."""

    reason: str
    remedy: str


def why_stranded(key: str, schedulers: Collection[str], state: State) -> Stranding | None:
    """Say why no pod with one of these schedulers is given a device by a name; None if one may be, or that is not known."""
    fleet, stock, bridge = state.fleet, state.stock, state.configuration.file.bridge
    served = fleet.classes.get(fleet.extended.get(key, ""))
    if stock is None or served is None or fleet.handed_out_anywhere.get(key):
        return None
    if not served.devices:
        reason = "and the class selects no device of a pool that can be used"
        return Stranding(reason, "install its driver, or mend the class's selectors") if stock.slices else None
    taint = _taint_on_all(stock, served.driver)
    # Claims that the bridge makes for a name tolerate the fence.
    if not taint or (taint == names.FENCE and bridge is not None and bridge.scheduler_name in schedulers):
        return None
    reason = f"but all devices of {served.driver} have the taint {taint}, which kube-scheduler's claims do not tolerate"
    if taint == names.FENCE:
        return Stranding(reason, "have such pods translated (`extendedResources`), or take the fence away")
    return Stranding(reason, "take the taint away, or write claims that tolerate it")


def _taint_on_all(stock: Stock, driver: str) -> str:
    """Name a taint that keeps claims from a device of a driver, if each of its devices has one; else ""."""
    found = ""
    for page in stock.pages.values():
        for device in page.devices if page.slice.spec.driver == driver else ():
            taint = next((one.key for one in device.taints if blocks(one, ())), "")
            if not taint:
                return ""
            found = found or taint
    return found
