"""Rules about drawbridge's own kinds, DeviceCompatibility and DeviceQuota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra import names
from dra.finding import Findings, finding_at
from dra.pointer import member
from dra.policy import COUNTER_SET, NODE, POOL, is_count, read_key
from dra.quantity import NANO
from dra.stock import ALL_CLASSES, DEVICES
from dra.validation.fields.limits import required, too_many
from dra.validation.fields.selectors import expression
from dra.validation.fields.shape import guess

if TYPE_CHECKING:
    from dra.objects import DeviceCompatibility, DeviceQuota
    from dra.server import Server
    from dra.validation.fleet.world import World

SCOPES: Final = (POOL, COUNTER_SET, NODE)
READINGS: Final = ("upstream", "proposal")
MAX_LIMITS: Final = 64
MAX_REQUIREMENTS: Final = 8
MAX_VALUES: Final = 64
MAX_TEXT: Final = 64
FORM: Final = (
    "must be <class>/devices, <class>/shares, <class>/<capacity>, <class>/profile.<name> or <class>/counter.<name>; "
    "<class> is a DeviceClass, or * for all"
)
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT: Final = ("Exists", "DoesNotExist")


def device_compatibility(value: DeviceCompatibility, server: Server) -> Findings:
    """Judge a DeviceCompatibility."""
    spec = value.spec
    yield from required(spec.driver, "/spec/driver", names.driver_name)
    for field, text in (("selector", spec.selector), ("compatibleOnlyWith", spec.compatible_only_with)):
        if text:
            yield from expression(text, f"/spec/{field}", server)
    for field, value_of_field, allowed in (("scope", spec.scope, SCOPES), ("groups", spec.groups, READINGS)):
        if value_of_field not in allowed:
            yield finding_at("D106", f"/spec/{field}", f"{value_of_field!r} must be one of {', '.join(allowed)}")
    if not spec.compatible_only_with and spec.groups == "upstream":
        message = "neither compatibleOnlyWith nor groups: proposal is set, so this object does nothing"
        yield finding_at("D118", "/spec", message)


def device_quota(value: DeviceQuota) -> Findings:
    """Judge the limits of a quota."""
    path = "/spec/hard"
    yield from too_many(value.spec.hard, MAX_LIMITS, path)
    if not value.spec.hard:
        yield finding_at("D101", path, "at least one limit is required")
    for key, amount in list(value.spec.hard.items())[:MAX_LIMITS]:
        pointer = member(path, key)
        parsed = read_key(key)
        if parsed is None:
            hint = "" if "/" in key or not key else f"write {key}/{DEVICES}"
            excerpt = key if len(key) <= 80 else f"{key[:77]}..."
            yield finding_at("D102", pointer, f"{excerpt!r} {FORM}", hint)
        elif amount.nano < 0:
            yield finding_at("D108", pointer, f"{amount} must be zero or more")
        elif len(str(amount)) > MAX_TEXT:
            yield finding_at("D103", pointer, f"an amount has at most {MAX_TEXT} characters")
        elif is_count(parsed[1]) and amount.nano % NANO:
            yield finding_at("D108", pointer, f"{amount} must be a whole number of devices")
    selector = value.spec.scope_selector
    if selector is None:
        return
    path = "/spec/scopeSelector/matchExpressions"
    yield from too_many(selector.match_expressions, MAX_REQUIREMENTS, path)
    for index, requirement in enumerate(selector.match_expressions[:MAX_REQUIREMENTS]):
        pointer = f"{path}/{index}"
        if requirement.scope_name != "PriorityClass":
            yield finding_at("D106", f"{pointer}/scopeName", f"{requirement.scope_name!r} must be PriorityClass")
        if requirement.operator not in (*_WITH_VALUES, *_WITHOUT):
            yield finding_at(
                "D106", f"{pointer}/operator", f"{requirement.operator!r} must be In, NotIn, Exists or DoesNotExist"
            )
        elif requirement.operator in _WITH_VALUES and not requirement.values:
            yield finding_at(
                "D101", f"{pointer}/values", f"{requirement.operator} needs values: the names of PriorityClasses"
            )
        elif requirement.operator in _WITHOUT and requirement.values:
            yield finding_at("D107", f"{pointer}/values", f"{requirement.operator} takes no values")
        yield from too_many(requirement.values, MAX_VALUES, f"{pointer}/values")


def limited_classes(value: DeviceQuota, world: World) -> Findings:
    """Report limits on classes that do not exist."""
    if not world.classes:
        return
    for key in value.spec.hard:
        parsed = read_key(key)
        class_name = parsed[0] if parsed else ""
        if not parsed or class_name == ALL_CLASSES or class_name in world.classes:
            continue
        message = f"there is no class {class_name!r} to limit"
        yield finding_at("D301", member("/spec/hard", key), message, guess(class_name, world.classes))
