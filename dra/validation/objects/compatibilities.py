"""DeviceCompatibility, our own kind: who may be allocated beside whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.policy import COUNTER_SET, NODE, POOL
from dra.validation.fields import names
from dra.validation.fields.limits import required
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
    yield from required(spec.driver, "/spec/driver", names.driver_name)
    for field, text in (("selector", spec.selector), ("compatibleOnlyWith", spec.compatible_only_with)):
        if text:
            yield from expression(text, f"/spec/{field}", gates)
    for field, chosen, allowed in (("scope", spec.scope, SCOPES), ("groups", spec.groups, READINGS)):
        if chosen not in allowed:
            yield Problem("D106", f"/spec/{field}", f"{chosen!r} must be one of {', '.join(allowed)}")
    if not spec.compatible_only_with and spec.groups == "upstream":
        message = "neither compatibleOnlyWith nor groups: proposal is set, so this object does nothing"
        yield Problem("D118", "/spec", message)
