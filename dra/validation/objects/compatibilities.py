"""DeviceCompatibility, our own kind: who may be allocated beside whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.validation.fields import names
from dra.validation.fields.limits import required_format
from dra.validation.fields.selectors import expression
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.objects import DeviceCompatibility
    from dra.validation.fields.gates import Gates

SCOPES: Final = ("pool", "counterSet")
READINGS: Final = ("upstream", "proposal")


def device_compatibility(value: DeviceCompatibility, gates: Gates) -> Problems:
    """Judge a DeviceCompatibility."""
    spec = value.spec
    yield from required_format(spec.driver, names.driver_name(spec.driver), "/spec/driver", "driver")
    for name, expression_ in (("selector", spec.selector), ("compatibleOnlyWith", spec.compatible_only_with)):
        if expression_:
            yield from expression(expression_, f"/spec/{name}", gates)
    for name, text, allowed in (("scope", spec.scope, SCOPES), ("groups", spec.groups, READINGS)):
        if text not in allowed:
            yield Problem("D106", f"/spec/{name}", f"{text!r} must be one of {', '.join(allowed)}")
    if not spec.compatible_only_with and spec.groups == "upstream":
        message = "neither compatibleOnlyWith nor groups: proposal is set, so this object does nothing"
        yield Problem("D118", "/spec", message)
