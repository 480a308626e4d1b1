"""Judges one entry of parameters by itself: whether the driver knows its kind, and whether it has the schema of that kind.

The driver itself finds a mistake only on the node, where the pod then stays in ContainerCreating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.finding import Finding, finding_at, recoded
from dra.validation.fields.shape import Fields, JsonShape, ListOf, MapOf, guess, show
from dra.validation.parameters.tables import DRIVERS, KnownDriver, ParameterKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.objects import OpaqueDeviceConfiguration
    from dra.wire import Json

MAX_BYTES: Final = 10 * 1024  # the API server's limit for parameters
# The maximum number of mistakes that are reported for one entry.
_MAX: Final = 16
# The codes of `shape`, and the codes that findings about parameters have instead.
_CODES: Final = {"D001": "D703", "D002": "D702"}


class Recognised(NamedTuple):
    """An entry with a known driver and kind."""

    driver: KnownDriver
    name: str
    kind: ParameterKind
    parameters: dict[str, Any]


def recognise(opaque: OpaqueDeviceConfiguration | None) -> Recognised | None:
    """Return an entry with its driver and kind; None if the driver or the kind is unknown."""
    driver, parameters = _read(opaque)
    if driver is None or not isinstance(parameters, dict):
        return None
    name = parameters.get("kind") if driver.version else next(iter(driver.kinds), None)
    kind = driver.kinds.get(name) if isinstance(name, str) else None
    return Recognised(driver, str(name), kind, parameters) if kind is not None else None


def _read(opaque: OpaqueDeviceConfiguration | None) -> tuple[KnownDriver | None, Json]:
    """Return the driver and the parameters; None, None if the driver is unknown or the parameters exceed the API server's limit."""
    driver = DRIVERS.get(opaque.driver) if opaque is not None else None
    if driver is None or opaque is None or opaque.parameters is None or len(opaque.parameters.json) > MAX_BYTES:
        return None, None
    return driver, opaque.parameters.value()


def parameter_problems(opaque: OpaqueDeviceConfiguration | None, path: str) -> list[Finding]:
    """Return the problems of an entry of a known driver, except problems that the API server reports. `path` ends in `/opaque`."""
    driver, value = _read(opaque)
    path = f"{path}/parameters"
    if driver is None or not isinstance(value, dict):
        return []
    if not driver.kinds:
        return [finding_at("D708", path, f"{driver.name} reads no parameters", "leave the entry out")]
    problems: list[Finding] = []
    if driver.version:
        # Without apiVersion and kind, the driver cannot decode the other fields.
        version, kind = value.get("apiVersion"), value.get("kind")
        hint = f"write apiVersion: {driver.version}"
        if not version:
            problems.append(finding_at("D701", path, "apiVersion is missing", hint))
        elif version != driver.version:
            problems.append(finding_at("D701", f"{path}/apiVersion", f"{driver.name} knows no {show(version)}", hint))
        if not kind:
            problems.append(finding_at("D701", path, "kind is missing", f"write kind: {' or '.join(driver.kinds)}"))
        elif not isinstance(kind, str) or kind not in driver.kinds:
            hint = "write it as a text"
            if isinstance(kind, str):
                owners = [known.name for known in DRIVERS.values() if kind in known.kinds and known.version]
                hint = f"it is a kind of {owners[0]}: correct opaque.driver" if owners else guess(kind, driver.kinds)
            message = f"{driver.name} knows no {show(kind)}, it knows {', '.join(driver.kinds)}"
            problems.append(finding_at("D701", f"{path}/kind", message, hint))
        value = {name: member for name, member in value.items() if name not in ("apiVersion", "kind")}
    recognised = recognise(opaque)
    if recognised is None:
        return problems
    gate = recognised.kind.gate
    if gate:
        message = (
            f"{driver.name} refuses a {recognised.name} unless its feature gate {gate} is on, and it is off by default"
        )
        problems.append(finding_at("D709", path, message))
    recognised.kind.form.check(value, path, problems)
    return [recoded(problem, _CODES.get(problem.code, problem.code)) for problem in problems[:_MAX]]


def read_members(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return apiVersion, kind and the members that a known driver reads. Other members may be secret."""
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    known_members: dict[str, Any] = {}
    if isinstance(version, str):
        known_members["apiVersion"] = version
    if isinstance(kind, str):
        known_members["kind"] = kind
    for driver in DRIVERS.values():
        name = kind if driver.version else next(iter(driver.kinds), None)
        known = driver.kinds.get(name) if isinstance(name, str) else None
        if known is not None and (not driver.version or version == driver.version):
            known_members |= _members_of(parameters, known.form)
    return known_members


def _members_of(value: Any, form: JsonShape) -> Any:
    match form, value:
        case Fields(), dict():
            return {
                name: _members_of(member, form.fields[name]) for name, member in value.items() if name in form.fields
            }
        case MapOf(), dict():
            return {name: _members_of(member, form.values) for name, member in value.items()}
        case ListOf(), list():
            return [_members_of(item, form.items) for item in value]
    return type(value)() if isinstance(value, dict | list) else value
