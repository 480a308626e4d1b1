"""One entry of parameters by itself: is it of a kind that its driver reads, and does it look like one?

The driver itself finds a mistake only on the node, and the pod then stays in ContainerCreating.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.validation.fields.parameters import MAX_BYTES
from dra.validation.fields.shape import nearest
from dra.validation.parameters.schema import ListForm, MapForm, ObjectForm, show
from dra.validation.parameters.table import DRIVERS
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import OpaqueDeviceConfiguration
    from dra.validation.parameters.driver import Driver, ParameterKind
    from dra.validation.parameters.schema import Form
    from dra.wire import Json

# The most mistakes that are reported of one entry.
_MOST: Final = 16


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
    driver, parameters = DRIVERS.get(opaque.driver), _read(opaque)
    if driver is None or not isinstance(parameters, dict):
        return None
    name = parameters.get("kind") if driver.version else next(iter(driver.kinds), None)
    kind = driver.kinds.get(name) if isinstance(name, str) else None
    return Recognised(driver, str(name), kind, parameters) if kind is not None else None


def _read(opaque: OpaqueDeviceConfiguration) -> Json:
    """Read the parameters of a driver that we know. What the API server refuses for its size is not read."""
    parameters = opaque.parameters
    if opaque.driver not in DRIVERS or parameters is None or len(parameters.json) > MAX_BYTES:
        return None
    return parameters.value()


def _judge(opaque: OpaqueDeviceConfiguration, path: str) -> Problems:
    driver, value = DRIVERS.get(opaque.driver), _read(opaque)
    if driver is None or not isinstance(value, dict):
        return
    if not driver.kinds:
        yield Problem("D708", path, f"{driver.name} reads no parameters", "leave the entry out")
        return
    if driver.version:
        yield from _type(driver, value, path)
        value = {name: member for name, member in value.items() if name not in ("apiVersion", "kind")}
    known = recognise(opaque)
    if known is None:
        return
    if known.kind.gate:
        message = f"{driver.name} refuses a {known.name} unless its feature gate {known.kind.gate} is on, and it is off by default"
        yield Problem("D709", path, message)
    yield from known.kind.form.judge(value, path)


def _type(driver: Driver, value: Mapping[str, Any], path: str) -> Problems:
    """Judge apiVersion and kind, without which the driver cannot decode the rest."""
    version, kind = value.get("apiVersion"), value.get("kind")
    hint = f"write apiVersion: {driver.version}"
    if not version:
        yield Problem("D701", path, "apiVersion is missing", hint)
    elif version != driver.version:
        yield Problem("D701", f"{path}/apiVersion", f"{driver.name} knows no {show(version)}", hint)
    if not kind:
        yield Problem("D701", path, "kind is missing", f"write kind: {' or '.join(driver.kinds)}")
    elif not isinstance(kind, str) or kind not in driver.kinds:
        hint = "write it as a text"
        if isinstance(kind, str):
            owners = [other.name for other in DRIVERS.values() if kind in other.kinds and other.version]
            near = nearest(kind, list(driver.kinds))
            hint = f"did you mean {near}?" if near else ""
            if owners:
                hint = f"it is a kind of {owners[0]}: correct opaque.driver"
        message = f"{driver.name} knows no {show(kind)}, it knows {', '.join(driver.kinds)}"
        yield Problem("D701", f"{path}/kind", message, hint)


def read_members(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a known driver reads of parameters of this version and kind, and those two: other members may be secret."""
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    kept = {name: text for name, text in (("apiVersion", version), ("kind", kind)) if isinstance(text, str)}
    for driver in DRIVERS.values():
        name = kind if driver.version else next(iter(driver.kinds), None)
        known = driver.kinds.get(name) if isinstance(name, str) else None
        if known is not None and (not driver.version or version == driver.version):
            kept |= _members_of(parameters, known.form)
    return kept


def _members_of(value: Any, form: Form) -> Any:
    match form, value:
        case ObjectForm(), dict():
            return {
                name: _members_of(member, form.fields[name]) for name, member in value.items() if name in form.fields
            }
        case MapForm(), dict():
            return {name: _members_of(member, form.values) for name, member in value.items()}
        case ListForm(), list():
            return [_members_of(one, form.items) for one in value]
    return type(value)() if isinstance(value, dict | list) else value
