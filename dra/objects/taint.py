"""Device taints, the DeviceTaintRules that add them, and tolerations (KEP-5055)."""

from __future__ import annotations

from dra.objects.meta import Condition, ObjectMeta
from dra.wire import Wire


class DeviceTaint(Wire, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class DeviceToleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceTaintSelector(Wire, frozen=True, kw_only=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Wire, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Wire, frozen=True, kw_only=True):
    api_version: str = "resource.k8s.io/v1"
    kind: str = "DeviceTaintRule"
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


def selector_of(rule: DeviceTaintRule, minor: int) -> DeviceTaintSelector | None:
    """Return the selector of a rule as a minor of Kubernetes reads it: up to 1.36, a missing one is an empty one (resourceslice/tracker)."""
    selector = rule.spec.device_selector
    return DeviceTaintSelector() if selector is None and minor < 37 else selector


def selects(selector: DeviceTaintSelector | None, driver: str, pool: str, device: str) -> bool:
    """Whether a rule with this selector taints a device. Without a selector it taints none, with an empty one all."""
    return (
        selector is not None
        and selector.driver in (None, driver)
        and selector.pool in (None, pool)
        and selector.device in (None, device)
    )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration matches a taint (resourceclaim.ToleratesTaint)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def blocks(taint: DeviceTaint, tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether a taint prevents the allocation of a device to a request with these tolerations."""
    return taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(t, taint) for t in tolerations)
