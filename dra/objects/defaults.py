"""The defaults that the API server sets on creation (k8s.io/kubernetes/pkg/apis/resource/v1/defaults.go).

Decoding does not set defaults. Code that reads objects from files therefore calls these functions first. They do not
set `timeAdded` of taints, because its default is the current time.
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
    return replace(given, spec=claim_spec(given.spec))


def template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(given, spec=replace(given.spec, spec=claim_spec(given.spec.spec)))


def claim_spec(given: ResourceClaimSpec) -> ResourceClaimSpec:
    requests = []
    for request in given.devices.requests:
        exactly = _request(request.exactly) if request.exactly is not None else None
        alternatives = tuple(map(_request, request.first_available))
        requests.append(replace(request, exactly=exactly, first_available=alternatives))
    return replace(given, devices=replace(given.devices, requests=tuple(requests)))


def _request(given: Request) -> Request:
    mode = given.allocation_mode or "ExactCount"
    count = 1 if mode == "ExactCount" and given.count == 0 else given.count
    tolerations = tuple(
        toleration if toleration.operator else replace(toleration, operator="Equal") for toleration in given.tolerations
    )
    return replace(given, allocation_mode=mode, count=count, tolerations=tolerations)
