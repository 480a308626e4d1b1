"""Drawbridge's kinds: DeviceCompatibility (which devices may be in use together) and DeviceQuota (namespace limits).

`dra.policy.compatibility` applies DeviceCompatibilities. `dra.policy.device_quota` defines the keys of `hard` and `used` of a
DeviceQuota.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire


class DeviceCompatibilitySpec(Wire, frozen=True, kw_only=True):
    driver: str = ""
    # A CEL expression that selects the devices to which the rule applies; if empty, it applies to all of the driver's
    # devices.
    selector: str = ""
    # A CEL expression over the *other* device, which may be in use together if it holds; if empty, any device may.
    compatible_only_with: str = ""
    # The rule applies between devices of one pool (pool), between devices that share a counter set (counterSet), or
    # between all of the driver's devices on a node, whatever their pools (node).
    scope: str = "pool"
    # What a device without groups is compatible with: only with devices without groups (upstream, as in KEP-5963), or
    # with all devices (proposal).
    groups: str = "upstream"


class CompatibilityFinding(Wire, frozen=True, kw_only=True):
    """A problem of a rule, with the code that `drawbridge check` gives it."""

    code: str = ""
    path: str = ""
    message: str = ""


class DeviceCompatibilityStatus(Wire, frozen=True, kw_only=True):
    """The status that the leading allocator writes."""

    observed_generation: int = 0
    devices: int = 0  # the number of published devices to which the rule applies
    findings: tuple[CompatibilityFinding, ...] = ()


class DeviceCompatibility(Wire, frozen=True, kw_only=True):
    api_version: str = "drawbridge.dev/v1alpha1"
    kind: str = "DeviceCompatibility"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceCompatibilitySpec = DeviceCompatibilitySpec()
    status: DeviceCompatibilityStatus = DeviceCompatibilityStatus()


class ScopedSelectorRequirement(Wire, frozen=True, kw_only=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Wire, frozen=True, kw_only=True):
    """The pods to which a quota applies, as in ResourceQuota. The only scope is PriorityClass."""

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
