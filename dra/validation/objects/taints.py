"""Taints, tolerations and taint rules (ValidateDeviceTaintRule, validateDeviceTaint, validateDeviceToleration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.validation.fields import names
from dra.validation.fields.limits import empty_or_wrong_format, wrong_format
from dra.validation.fields.metadata import conditions
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import DeviceTaint, DeviceTaintRule, DeviceToleration

_EFFECTS = ("NoSchedule", "NoExecute", "None")


def taint(value: DeviceTaint, path: str) -> Problems:
    wrong = names.label_key(value.key)
    yield from empty_or_wrong_format(value.key, wrong, f"{path}/key", "key")
    wrong = names.label_value(value.value)
    yield from wrong_format(value.value, wrong, f"{path}/value")
    effect = value.effect
    at = f"{path}/effect"
    if not effect:
        yield Problem("D101", at, "effect is required: NoSchedule, NoExecute or None")
    elif effect not in _EFFECTS:
        yield Problem("D106", at, f"{effect!r} must be NoSchedule, NoExecute or None")


def tolerations(values: Sequence[DeviceToleration], path: str) -> Problems:
    for index, value in enumerate(values):
        at = f"{path}/{index}"
        if value.key:
            yield from wrong_format(value.key, names.label_key(value.key), f"{at}/key")
        match value.operator:
            case "Exists":
                if value.value:
                    yield Problem("D107", f"{at}/value", "the operator Exists takes no value")
            case "" | "Equal":
                yield from wrong_format(value.value, names.label_value(value.value), f"{at}/value")
            case operator:
                yield Problem("D106", f"{at}/operator", f"{operator!r} must be Equal or Exists")
        if value.effect and value.effect not in _EFFECTS:
            yield Problem("D106", f"{at}/effect", f"{value.effect!r} must be NoSchedule, NoExecute or None")


def taint_rule(rule: DeviceTaintRule) -> Problems:
    """Judge spec and status of a DeviceTaintRule."""
    selector = rule.spec.device_selector
    if selector is not None:
        path = "/spec/deviceSelector"
        driver, pool, device = selector.driver, selector.pool, selector.device
        if driver is not None:
            wrong = names.driver_name(driver)
            yield from empty_or_wrong_format(driver, wrong, f"{path}/driver", "driver")
        if pool is not None:
            wrong = names.pool_name(pool)
            yield from empty_or_wrong_format(pool, wrong, f"{path}/pool", "pool")
        if device is not None:
            wrong = names.dns_label(device)
            yield from wrong_format(device, wrong, f"{path}/device")
    yield from taint(rule.spec.taint, "/spec/taint")
    yield from conditions(rule.status.conditions, 8, "/status/conditions")
