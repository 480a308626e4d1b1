"""DeviceQuota: our own object that limits what the claims of a namespace may hold.

What keys of `hard` and `used` are, and what counts for each, is said in `dra.policy.quota`.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire


class ScopedSelectorRequirement(Wire, frozen=True, kw_only=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Wire, frozen=True, kw_only=True):
    """Which pods a quota is about, as core's ResourceQuota has it; of its scopes only PriorityClass."""

    match_expressions: tuple[ScopedSelectorRequirement, ...] = ()


class DeviceQuotaSpec(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}
    scope_selector: ScopeSelector | None = None


class DeviceQuotaStatus(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class DeviceQuota(Wire, frozen=True, kw_only=True):
    api_version: str = "drawbridge.dev/v1alpha1"
    kind: str = "DeviceQuota"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceQuotaSpec = DeviceQuotaSpec()
    status: DeviceQuotaStatus = DeviceQuotaStatus()
