"""What a claim requests at least, by its own text. For quotas, before the claim is allocated.

    ExactCount       count devices, and count times the requested capacities
    All              one device, because the claim does not tell how many devices match
    firstAvailable   for each amount, the smallest of the alternatives
    adminAccess      nothing

The allocation may add more: a whole device counts with its full capacity (`dra.stock.amounts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.stock import ALL_CLASSES, DEVICES, ONE, total

if TYPE_CHECKING:
    from dra.objects import DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec
    from dra.stock import Amounts


def requested_amounts(spec: ResourceClaimSpec) -> Amounts:
    """Return the least amounts that an allocation of a claim with this spec holds."""
    parts: list[Amounts] = []
    for request in spec.devices.requests:
        if request.exactly is not None and request.exactly.admin_access:
            continue
        alternatives = [_amounts(alternative) for alternative in request.alternatives.values()]
        keys = alternatives[0] if alternatives else ()
        parts.append({key: min(amounts.get(key, 0) for amounts in alternatives) for key in keys})
    return total(parts)


def _amounts(alternative: ExactDeviceRequest | DeviceSubRequest) -> Amounts:
    count = 1 if alternative.allocation_mode == "All" else max(alternative.count, 1)
    capacity = alternative.capacity.requests if alternative.capacity is not None else {}
    amounts = {name: amount.nano * count for name, amount in capacity.items()} | {DEVICES: ONE * count}
    return {
        (class_name, resource): amount
        for class_name in (alternative.device_class_name, ALL_CLASSES)
        for resource, amount in amounts.items()
    }
