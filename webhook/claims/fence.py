"""The fence around managed devices: a taint that a DeviceTaintRule puts on all of a driver's, and that only claims tolerate which
go to the bridge. So no other scheduler gives one of these devices to anybody, whatever it believes to be free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.objects import DeviceToleration
from webhook import names
from webhook.claims.sharing import Sharing

if TYPE_CHECKING:
    from dra.objects import DeviceRequest
    from webhook.claims.sharing import Grant

PASS = DeviceToleration(key=names.FENCE, operator="Exists", effect="NoSchedule")


def pass_fence(shared: Sharing) -> Sharing:
    """Answer with grants whose claims may have fenced devices."""
    grants: list[Grant] = []
    for grant in shared.grants:
        asked = grant.spec.devices
        requests = tuple([_tolerant(request) for request in asked.requests])
        devices = replace(asked, requests=requests)
        spec = replace(grant.spec, devices=devices)
        tolerant = replace(grant, spec=spec)
        grants.append(tolerant)
    return Sharing(tuple(grants), shared.remarks)


def _tolerant(request: DeviceRequest) -> DeviceRequest:
    exactly = request.exactly
    if exactly is not None:
        exactly = replace(exactly, tolerations=(*exactly.tolerations, PASS))
    alternatives = [replace(one, tolerations=(*one.tolerations, PASS)) for one in request.first_available]
    return replace(request, exactly=exactly, first_available=tuple(alternatives))


def taint_rule(driver: str) -> dict[str, object]:
    """Make the DeviceTaintRule that fences a driver's devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"drawbridge-fence-{driver}"},
        "spec": {
            "deviceSelector": {"driver": driver},
            "taint": {"key": names.FENCE, "value": "bridge", "effect": "NoSchedule"},
        },
    }
