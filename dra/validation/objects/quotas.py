"""DeviceQuota, our own kind: how much of which class a namespace may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.pointer import member
from dra.quantity import NANO
from dra.validation.fields import names
from dra.validation.fields.limits import too_many, wrong_format
from dra.validation.fields.shape import nearest
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from dra.objects import DeviceQuota
    from dra.validation.fleet.world import World

MAX_LIMITS: Final = 64
DEVICES: Final = "devices"


def device_quota(value: DeviceQuota) -> Problems:
    """Judge the limits of a quota."""
    path = "/spec/hard"
    yield from too_many(value.spec.hard, MAX_LIMITS, path)
    if not value.spec.hard:
        yield Problem("D101", path, "at least one limit is required")
    for key, amount in value.spec.hard.items():
        at = member(path, key)
        class_name, slash, what = key.partition("/")
        if not slash or not what:
            hint = f"write {class_name}/{DEVICES}" if class_name else ""
            yield Problem("D102", at, f"{key!r} must be <class>/devices or <class>/<capacity>", hint)
            continue
        yield from wrong_format(class_name, names.dns_subdomain(class_name), at)
        yield from wrong_format(what, names.qualified_name(what), at)
        if amount.nano < 0:
            yield Problem("D108", at, f"{amount} must be zero or more")
        elif what == DEVICES and amount.nano % NANO:
            yield Problem("D108", at, f"{amount} must be a whole number of devices")


def limited_classes(value: DeviceQuota, world: World) -> Problems:
    """Complain about limits on classes that do not exist."""
    if not world.knows_classes:
        return
    for key in value.spec.hard:
        class_name = key.partition("/")[0]
        if not class_name or class_name in world.classes:
            continue
        hint = ""
        near = nearest(class_name, list(world.classes))
        if near:
            hint = f"did you mean {near}?"
        path = member("/spec/hard", key)
        yield Problem("D301", path, f"there is no class {class_name!r} to limit", hint)
