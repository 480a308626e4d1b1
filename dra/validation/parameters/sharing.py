"""Sharing against the request: settings for more devices than are asked for, MPS beside shares, and sharing that no second container uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dra.pointer import escape
from dra.validation.parameters.judge import recognise
from dra.validation.parameters.schema import refuse
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import DeviceClaim, DeviceClaimConfiguration

_MPS: Final = "MPS"
# More requests and entries than these are refused by the API server.
_MOST: Final = 32


def sharing_problems(devices: DeviceClaim, path: str) -> Problems:
    """Judge the MPS settings of a claim against what it asks for."""
    for index, config in enumerate(devices.config[:_MOST]):
        sharing = _sharing(config)
        if sharing.get("strategy") != _MPS:
            continue
        at = f"{path}/config/{index}/opaque/parameters/sharing"
        reached = [
            request.exactly
            for request in devices.requests[:_MOST]
            if request.exactly is not None and (not config.requests or request.name in config.requests)
        ]
        asked = [name for one in reached if one.capacity is not None for name in one.capacity.requests]
        if any(name.rpartition("/")[2] == "shares" for name in asked):
            message = "the driver refuses MPS where it gives GPUs away in shares, and the request asks for some"
            yield Problem("D704", f"{at}/strategy", message)
        # How many devices the entry is for is known unless a request has alternatives or asks for all devices.
        all_told = not any(request.first_available for request in devices.requests)
        if not reached or not all_told or any(one.allocation_mode == "All" for one in reached):
            continue
        count = sum(max(one.count, 1) for one in reached)
        mps = sharing.get("mpsConfig")
        limits = mps.get("defaultPerDevicePinnedMemoryLimit") if isinstance(mps, dict) else None
        for name in limits if isinstance(limits, dict) else ():
            # The driver numbers the devices of a claim from 0.
            if name.isascii() and name.isdecimal() and len(name) < 7 and int(name) >= count:
                where = f"{at}/mpsConfig/defaultPerDevicePinnedMemoryLimit/{escape(name)}"
                yield refuse(where, f"the entry is for {count} devices, of which the last has index {count - 1}")


def strategy_of(devices: DeviceClaim) -> str:
    """The strategy by which a claim wants its devices shared among the containers of a pod; "" if it has none, or asks for a part of a device."""
    if any(one.exactly is None or one.exactly.capacity is not None for one in devices.requests):
        return ""
    for config in devices.config[:_MOST]:
        strategy = _sharing(config).get("strategy")
        if isinstance(strategy, str) and strategy:
            return strategy
    return ""


def _sharing(config: DeviceClaimConfiguration) -> Mapping[str, Any]:
    known = recognise(config.opaque) if config.opaque is not None else None
    found = known.parameters.get("sharing") if known is not None else None
    return found if isinstance(found, dict) else {}
