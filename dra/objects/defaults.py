"""What the API server fills in when an object is created (k8s.io/kubernetes/pkg/apis/resource/v1/defaults.go).

The wire types keep what was written, and the allocator judges what it is given; whoever reads objects that have not been
through an API server applies this first. `timeAdded` of taints is left alone: it is a clock's matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

if TYPE_CHECKING:
    from dra.objects.claim import (
        DeviceRequest,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceClaim,
        ResourceClaimSpec,
        ResourceClaimTemplate,
    )
    from dra.objects.taint import DeviceToleration

    Request = TypeVar("Request", ExactDeviceRequest, DeviceSubRequest)


def claim(given: ResourceClaim) -> ResourceClaim:
    """Fill in a claim."""
    return replace(given, spec=claim_spec(given.spec))


def template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Fill in a template."""
    return replace(given, spec=replace(given.spec, spec=claim_spec(given.spec.spec)))


def claim_spec(given: ResourceClaimSpec) -> ResourceClaimSpec:
    """Fill in the spec of a claim."""
    requests = tuple(_request(request) for request in given.devices.requests)
    return replace(given, devices=replace(given.devices, requests=requests))


def _request(given: DeviceRequest) -> DeviceRequest:
    exactly = given.exactly and _modes(given.exactly)
    return replace(given, exactly=exactly, first_available=tuple(_modes(sub) for sub in given.first_available))


def _modes(given: Request) -> Request:
    mode = given.allocation_mode or "ExactCount"
    count = 1 if mode == "ExactCount" and given.count == 0 else given.count
    tolerations = tuple(_toleration(toleration) for toleration in given.tolerations)
    return replace(given, allocation_mode=mode, count=count, tolerations=tolerations)


def _toleration(given: DeviceToleration) -> DeviceToleration:
    return given if given.operator else replace(given, operator="Equal")
