"""Our own kinds: DeviceCompatibility (which devices may be in use together) and DeviceQuota (limits of a namespace).

`dra.policy.rules` applies the first; `dra.policy.quota` defines the keys of `hard` and `used` of the second.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire


class DeviceCompatibilitySpec(Wire, frozen=True, kw_only=True):
    driver: str = ""
    # CEL that selects the devices of the driver with this rule; empty selects all.
    selector: str = ""
    # CEL over the *other* device; empty means no restriction.
    compatible_only_with: str = ""
    # The scope: the rule applies between devices of one pool (pool), devices that share a counter set (counterSet), or all of the
    # driver's devices on a node, in any pool (node).
    scope: str = "pool"
    # The meaning of "no groups" on this driver's devices: compatible only with others without groups (upstream,
    # KEP-5963), or with all (proposal).
    groups: str = "upstream"


class CompatibilityFinding(Wire, frozen=True, kw_only=True):
    """A problem of a rule, with a code of `drawbridge check`."""

    code: str = ""
    path: str = ""
    message: str = ""


class DeviceCompatibilityStatus(Wire, frozen=True, kw_only=True):
    """The status that the leading allocator writes."""

    observed_generation: int = 0
    devices: int = 0  # published devices with the rule
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
    """The pods that a quota applies to, as in ResourceQuota, with the scope PriorityClass only."""

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
