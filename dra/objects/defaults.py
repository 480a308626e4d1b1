"""What the API server fills in when an object is created (k8s.io/kubernetes/pkg/apis/resource/v1/defaults.go).

The wire types keep what was written, and the allocator judges what it is given; code that reads objects from files
applies this first. `timeAdded` of taints is left alone: it is a clock's matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

if TYPE_CHECKING:
    from dra.objects.claim import (
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaim,
        ResourceClaimSpec,
        ResourceClaimTemplate,
    )

    Request = TypeVar("Request", ExactDeviceRequest, DeviceSubRequest)


def claim(given: ResourceClaim) -> ResourceClaim:
    """Fill in a claim."""
    return replace(given, spec=claim_spec(given.spec))


def template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Fill in a template."""
    return replace(given, spec=replace(given.spec, spec=claim_spec(given.spec.spec)))


def claim_spec(given: ResourceClaimSpec) -> ResourceClaimSpec:
    """Fill in the spec of a claim."""
    requests = tuple(
        replace(
            one, exactly=one.exactly and _modes(one.exactly), first_available=tuple(map(_modes, one.first_available))
        )
        for one in given.devices.requests
    )
    return replace(given, devices=replace(given.devices, requests=requests))


def _modes(given: Request) -> Request:
    mode = given.allocation_mode or "ExactCount"
    count = 1 if mode == "ExactCount" and given.count == 0 else given.count
    tolerations = tuple(one if one.operator else replace(one, operator="Equal") for one in given.tolerations)
    return replace(given, allocation_mode=mode, count=count, tolerations=tolerations)
