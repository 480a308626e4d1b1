"""DeviceCompatibility, our own kind: who may be allocated beside whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.policy import COUNTER_SET, NODE, POOL
from dra.validation.fields import names
from dra.validation.fields.limits import empty_or_wrong_format
from dra.validation.fields.selectors import expression
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.objects import DeviceCompatibility
    from dra.validation.fields.gates import Gates

SCOPES: Final = (POOL, COUNTER_SET, NODE)
READINGS: Final = ("upstream", "proposal")


def device_compatibility(value: DeviceCompatibility, gates: Gates) -> Problems:
    """Judge a DeviceCompatibility."""
    spec = value.spec
    wrong = names.driver_name(spec.driver)
    yield from empty_or_wrong_format(spec.driver, wrong, "/spec/driver", "driver")
    expressions = {
        "selector": spec.selector,
        "compatibleOnlyWith": spec.compatible_only_with,
    }
    for field, text in expressions.items():
        if text:
            yield from expression(text, f"/spec/{field}", gates)
    choices = {
        "scope": (spec.scope, SCOPES),
        "groups": (spec.groups, READINGS),
    }
    for field, (chosen, allowed) in choices.items():
        if chosen not in allowed:
            listed = ", ".join(allowed)
            yield Problem("D106", f"/spec/{field}", f"{chosen!r} must be one of {listed}")
    if not spec.compatible_only_with and spec.groups == "upstream":
        message = "neither compatibleOnlyWith nor groups: proposal is set, so this object does nothing"
        yield Problem("D118", "/spec", message)
