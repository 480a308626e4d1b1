"""Our own kinds. DeviceCompatibility carries `compatibleOnlyWith`, for which upstream has no field; DeviceQuota limits what the claims of a namespace hold.

The rules are applied by `dra.policy.rules`; what keys of `hard` and `used` are, and what counts for each, is said in `dra.policy.quota`.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.quantity import Quantity
from dra.wire import Wire


class DeviceCompatibilitySpec(Wire, frozen=True, kw_only=True):
    driver: str = ""
    # CEL that picks the devices of the driver which carry the rule; empty picks them all.
    selector: str = ""
    # CEL over the *other* device. Empty means no restriction of this kind.
    compatible_only_with: str = ""
    # What counts as a peer: every device of the pool, only those that share a counter set (counterSet), or every device of the driver
    # on the same node, in whichever pool (node).
    scope: str = "pool"
    # What "no groups" means on this driver's devices: compatible only with others without groups (upstream, KEP-5963),
    # or with all (proposal).
    groups: str = "upstream"


class CompatibilityFinding(Wire, frozen=True, kw_only=True):
    """What is wrong with a rule, under the codes of `drawbridge check`."""

    code: str = ""
    path: str = ""
    message: str = ""


class DeviceCompatibilityStatus(Wire, frozen=True, kw_only=True):
    """What the leading allocator found."""

    observed_generation: int = 0
    devices: int = 0  # published devices that carry the rule
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
