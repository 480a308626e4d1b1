"""DeviceQuota: our own object that limits what the claims of a namespace may hold, per class.

Keys of `hard` and `used` are `<class>/devices` for counts and `<class>/<capacity>` for sums of a capacity.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire


class DeviceQuotaSpec(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}


class DeviceQuotaStatus(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class DeviceQuota(Wire, frozen=True, kw_only=True):
    api_version: str = "drawbridge.dev/v1alpha1"
    kind: str = "DeviceQuota"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceQuotaSpec = DeviceQuotaSpec()
    status: DeviceQuotaStatus = DeviceQuotaStatus()
