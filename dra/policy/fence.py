"""The fence: a device taint that only the bridge's claims tolerate, so that no other scheduler allocates these devices.

The bridge is drawbridge's allocator.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from dra.objects import DeviceClaim, DeviceTaintRule, DeviceToleration, ResourceClaim, blocks

FENCE_TOLERATION: Final = DeviceToleration(key="drawbridge.dev/fence", operator="Exists", effect="NoSchedule")


def fences(rule: DeviceTaintRule, driver: str) -> bool:
    """Whether a rule puts the fence on all devices of a driver."""
    selector = rule.spec.device_selector
    if selector is None or selector.driver not in (None, driver) or selector.pool or selector.device:
        return False
    return rule.spec.taint.key == FENCE_TOLERATION.key and blocks(rule.spec.taint, ())


def tolerate_fence(claim: ResourceClaim) -> ResourceClaim:
    """Add the toleration to a claim for extended resources (KEP-5004), which kube-scheduler creates without it."""
    requests = [
        replace(request, exactly=replace(request.exactly, tolerations=(FENCE_TOLERATION,)))
        for request in claim.spec.devices.requests
        if request.exactly is not None
    ]
    return replace(claim, spec=replace(claim.spec, devices=DeviceClaim(requests=tuple(requests))))
