"""The toleration of claims that the bridge serves: a taint of that key keeps other schedulers from its devices."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from dra.objects import DeviceClaim, DeviceToleration, ResourceClaim

PASS: Final = DeviceToleration(key="drawbridge.dev/fence", operator="Exists", effect="NoSchedule")


def tolerate_fence(claim: ResourceClaim) -> ResourceClaim:
    """Let the requests of a claim that was made of names (KEP-5004) tolerate it, which kube-scheduler does not."""
    requests = [
        replace(request, exactly=replace(request.exactly, tolerations=(PASS,)))
        for request in claim.spec.devices.requests
        if request.exactly is not None
    ]
    return replace(claim, spec=replace(claim.spec, devices=DeviceClaim(requests=tuple(requests))))
