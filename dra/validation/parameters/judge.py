"""One entry of parameters by itself: is it of a kind that its driver reads, and does it look like one?

The driver decides this on the node, when the pod is there already and hangs; and only then.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from dra.validation.fields.parameters import MAX_BYTES
from dra.validation.fields.shape import nearest
from dra.validation.parameters.schema import show
from dra.validation.parameters.table import DRIVERS
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import OpaqueDeviceConfiguration
    from dra.validation.parameters.driver import Driver, ParameterKind

# Mistakes of one entry that are told: who sends nonsense need not read about all of it.
_MOST: Final = 16
_TYPE: Final = ("apiVersion", "kind")


class Recognised(NamedTuple):
    """An entry whose driver we know, and its kind if that is known as well."""

    driver: Driver
    name: str
    kind: ParameterKind
    parameters: dict[str, Any]


def parameter_problems(opaque: OpaqueDeviceConfiguration | None, path: str) -> Problems:
    """Judge an entry; its pointer ends in `/opaque`. What the API server refuses of it, and drivers that we do not know, are passed over."""
    found = _judge(opaque, f"{path}/parameters") if opaque is not None else iter(())
    yield from islice(found, _MOST)


def recognise(opaque: OpaqueDeviceConfiguration) -> Recognised | None:
    """Say of which driver and kind an entry is, if both are known."""
    driver = DRIVERS.get(opaque.driver)
    if driver is None or not isinstance(opaque.parameters, dict):
        return None
    name = opaque.parameters.get("kind") if driver.version else next(iter(driver.kinds), None)
    kind = driver.kinds.get(name) if isinstance(name, str) else None
    return Recognised(driver, str(name), kind, opaque.parameters) if kind is not None else None


def _judge(opaque: OpaqueDeviceConfiguration, path: str) -> Problems:
    driver, value = DRIVERS.get(opaque.driver), opaque.parameters
    if driver is None or not isinstance(value, dict) or len(msgspec.json.encode(value)) > MAX_BYTES:
        return
    if not driver.kinds:
        yield Problem("D708", path, f"{driver.name} reads no parameters", "leave the entry out")
        return
    if driver.version:
        yield from _type(driver, value, path)
        value = {name: member for name, member in value.items() if name not in _TYPE}
    known = recognise(opaque)
    if known is None:
        return
    if known.kind.gate:
        message = f"{driver.name} refuses a {known.name} unless its feature gate {known.kind.gate} is on, and it is off by default"
        yield Problem("D709", path, message)
    yield from known.kind.form.judge(value, path)


def _type(driver: Driver, value: Mapping[str, Any], path: str) -> Problems:
    """Judge apiVersion and kind, without which the driver cannot even decode the rest."""
    version, kind = value.get("apiVersion"), value.get("kind")
    hint = f"write apiVersion: {driver.version}"
    if not version:
        yield Problem("D701", path, "apiVersion is missing", hint)
    elif version != driver.version:
        yield Problem("D701", f"{path}/apiVersion", f"{driver.name} knows no {show(version)}", hint)
    if not kind:
        yield Problem("D701", path, "kind is missing", f"write kind: {' or '.join(driver.kinds)}")
    elif not isinstance(kind, str) or kind not in driver.kinds:
        message = f"{driver.name} knows no {show(kind)}, it knows {', '.join(driver.kinds)}"
        yield Problem("D701", f"{path}/kind", message, _meant(driver, kind))


def _meant(driver: Driver, kind: object) -> str:
    if not isinstance(kind, str):
        return "write it as a text"
    owners = [other.name for other in DRIVERS.values() if kind in other.kinds and other.version]
    if owners:
        return f"it is a kind of {owners[0]}: correct opaque.driver"
    near = nearest(kind, list(driver.kinds))
    return f"did you mean {near}?" if near else ""
