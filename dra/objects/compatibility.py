"""DeviceCompatibility: our own object that carries `compatibleOnlyWith`, since upstream has no field.

The rule itself is applied by `dra.policy.rules`; semantics in docs/architecture.md and in the proposal's reading of groups.
"""

from __future__ import annotations

from dra.objects.meta import ObjectMeta
from dra.wire import Wire


class DeviceCompatibilitySpec(Wire, frozen=True, kw_only=True):
    driver: str = ""
    # CEL that picks the devices of the driver which carry the rule; empty picks them all.
    selector: str = ""
    # CEL over the *other* device. Empty means no restriction of this kind.
    compatible_only_with: str = ""
    # Who counts as a peer: every device of the pool, only those that share a counter set (counterSet), or every device of the driver
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
