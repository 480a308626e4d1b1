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


def claim(original: ResourceClaim) -> ResourceClaim:
    return replace(original, spec=claim_spec(original.spec))


def template(original: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(original, spec=replace(original.spec, spec=claim_spec(original.spec.spec)))


def claim_spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    requests = []
    for request in spec.devices.requests:
        exactly = _request(request.exactly) if request.exactly is not None else None
        alternatives = tuple(map(_request, request.first_available))
        requests.append(replace(request, exactly=exactly, first_available=alternatives))
    return replace(spec, devices=replace(spec.devices, requests=tuple(requests)))


def _request(original: Request) -> Request:
    mode = original.allocation_mode or "ExactCount"
    count = 1 if mode == "ExactCount" and original.count == 0 else original.count
    tolerations = tuple(
        toleration if toleration.operator else replace(toleration, operator="Equal")
        for toleration in original.tolerations
    )
    return replace(original, allocation_mode=mode, count=count, tolerations=tolerations)
