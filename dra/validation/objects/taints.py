"""Rules about taints, tolerations and taint rules (ValidateDeviceTaintRule, validateDeviceTaint, validateDeviceToleration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra import names
from dra.finding import Findings, finding_at
from dra.validation.fields.limits import required, wrong_format
from dra.validation.fields.metadata import conditions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import DeviceTaint, DeviceTaintRule, DeviceToleration

_EFFECTS = ("NoSchedule", "NoExecute", "None")


def taint(value: DeviceTaint, path: str) -> Findings:
    yield from required(value.key, f"{path}/key", names.label_key)
    yield from wrong_format(value.value, names.label_value, f"{path}/value")
    effect = value.effect
    pointer = f"{path}/effect"
    if not effect:
        yield finding_at("D101", pointer, "effect is required: NoSchedule, NoExecute or None")
    elif effect not in _EFFECTS:
        yield finding_at("D106", pointer, f"{effect!r} must be NoSchedule, NoExecute or None")


def tolerations(values: Sequence[DeviceToleration], path: str) -> Findings:
    for index, value in enumerate(values):
        pointer = f"{path}/{index}"
        if value.key:
            yield from wrong_format(value.key, names.label_key, f"{pointer}/key")
        match value.operator:
            case "Exists":
                if value.value:
                    yield finding_at("D107", f"{pointer}/value", "the operator Exists takes no value")
            case "" | "Equal":
                yield from wrong_format(value.value, names.label_value, f"{pointer}/value")
            case operator:
                yield finding_at("D106", f"{pointer}/operator", f"{operator!r} must be Equal or Exists")
        if value.effect and value.effect not in _EFFECTS:
            yield finding_at("D106", f"{pointer}/effect", f"{value.effect!r} must be NoSchedule, NoExecute or None")


def taint_rule(rule: DeviceTaintRule) -> Findings:
    """Judge spec and status of a DeviceTaintRule."""
    selector = rule.spec.device_selector
    if selector is not None:
        path = "/spec/deviceSelector"
        if selector.driver is not None:
            yield from required(selector.driver, f"{path}/driver", names.driver_name)
        if selector.pool is not None:
            yield from required(selector.pool, f"{path}/pool", names.pool_name)
        if selector.device is not None:
            yield from wrong_format(selector.device, names.dns_label, f"{path}/device")
    yield from taint(rule.spec.taint, "/spec/taint")
    yield from conditions(rule.status.conditions, 8, "/status/conditions")
