"""The fence: a taint that keeps other schedulers from devices of the bridge, and the toleration of claims that the bridge serves."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from dra.objects import DeviceClaim, DeviceTaintRule, DeviceToleration, ResourceClaim, blocks

PASS: Final = DeviceToleration(key="drawbridge.dev/fence", operator="Exists", effect="NoSchedule")


def fences(rule: DeviceTaintRule, driver: str) -> bool:
    """Say whether a rule is a fence around all devices of a driver."""
    selector = rule.spec.device_selector
    if selector is None or selector.driver not in (None, driver) or selector.pool or selector.device:
        return False
    return rule.spec.taint.key == PASS.key and blocks(rule.spec.taint, ())


def tolerate_fence(claim: ResourceClaim) -> ResourceClaim:
    """Let the requests of a claim that was made of names (KEP-5004) tolerate it, which kube-scheduler does not."""
    requests = [
        replace(request, exactly=replace(request.exactly, tolerations=(PASS,)))
        for request in claim.spec.devices.requests
        if request.exactly is not None
    ]
    return replace(claim, spec=replace(claim.spec, devices=DeviceClaim(requests=tuple(requests))))
