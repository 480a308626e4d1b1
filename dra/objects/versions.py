"""Older versions of resource.k8s.io become v1, as the API server converts them (pkg/apis/resource/v1beta1/conversion.go).

v1beta2 has the shape of v1. v1beta1 has the fields of a request beside its name, and those of a device under `basic`;
v1alpha3 of 1.31 wrote capacities as plain amounts on top. Works on plain JSON; findings about the converted object are
led back to what was written by `written_pointer`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.server import OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP: Final = "resource.k8s.io"
CURRENT: Final = f"{GROUP}/v1"
BETA_2: Final = f"{GROUP}/v1beta2"
BETA_1: Final = f"{GROUP}/v1beta1"
ALPHA_3: Final = f"{GROUP}/v1alpha3"

_KINDS: Final = frozenset({"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"})
# What a server of 1.37 can be told to serve; v1alpha3 is left for the taint rules alone.
SERVED: Final = {
    CURRENT: _KINDS | {"DeviceTaintRule"},
    BETA_2: _KINDS | {"DeviceTaintRule"},
    BETA_1: _KINDS,
    ALPHA_3: frozenset({"DeviceTaintRule", "ResourcePoolStatusRequest"}),
}
# The first minor that has a kind in a version, where that is not the oldest that has v1 at all.
_SINCE: Final = {
    (CURRENT, "DeviceTaintRule"): 37,
    (BETA_2, "DeviceTaintRule"): 36,
    (ALPHA_3, "ResourcePoolStatusRequest"): 36,
}
_EXACT: Final = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)
_REQUEST: Final = re.compile(r"((?:/spec){1,2}/devices/requests/\d+)/exactly")
_DEVICE: Final = re.compile(r"(/spec/devices/\d+)(/(?!name$|basic(?:/|$)).*)")


class Upgrade(NamedTuple):
    """An object as v1, and the pointers of the fields that its own version does not have."""

    value: dict[str, Any]
    unknown: tuple[str, ...] = ()


def upgrade(value: dict[str, Any]) -> Upgrade:
    """Convert an object of resource.k8s.io to v1; whatever is not of that group or already v1 is returned as it is."""
    version = value.get("apiVersion")
    if version not in (BETA_2, BETA_1, ALPHA_3):
        return Upgrade(value)
    current = {**value, "apiVersion": CURRENT}
    if version == BETA_2:
        return Upgrade(current)
    kind = str(value.get("kind"))
    convert = _CONVERTERS.get(kind)
    spec = value.get("spec")
    unknown: list[str] = []
    if convert is not None and isinstance(spec, dict):
        current["spec"] = convert(spec, "/spec", unknown)
    return Upgrade(current, tuple(unknown))


def served_since(version: str, kind: str) -> int:
    """Name the first minor of 1.x, from 1.34 on, that knows a kind in a version, be it off by default."""
    return _SINCE.get((version, kind), OLDEST)


def written_pointer(pointer: str, version: str, kind: str) -> str:
    """Lead a pointer into the converted object back to where that was written."""
    if version not in (BETA_1, ALPHA_3):
        return pointer
    if kind == "ResourceSlice":
        return _DEVICE.sub(r"\1/basic\2", pointer)
    return _REQUEST.sub(r"\1", pointer)


def _claim(spec: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    devices = spec.get("devices")
    if not isinstance(devices, dict):
        return spec
    old = devices.get("requests")
    if not isinstance(old, list):
        return spec
    requests: list[Any] = []
    for index, request in enumerate(old):
        at = f"{path}/devices/requests/{index}"
        is_object = isinstance(request, dict)
        requests.append(_request(request, at, unknown) if is_object else request)
    upgraded = {**devices, "requests": requests}
    return {**spec, "devices": upgraded}


def _request(request: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    if "exactly" in request:
        unknown.append(f"{path}/exactly")
    rest = dict(request)
    rest.pop("exactly", None)
    exact: dict[str, Any] = {}
    is_set = False
    for name in _EXACT:
        if name not in request:
            continue
        member = rest.pop(name)
        exact[name] = member
        # An empty list counts as set, an empty text or a zero does not.
        if member is not None and member not in ("", 0):
            is_set = True
    if is_set:
        rest["exactly"] = exact
    return rest


def _template(spec: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    inner = spec.get("spec")
    return {**spec, "spec": _claim(inner, f"{path}/spec", unknown)} if isinstance(inner, dict) else spec


def _slice(spec: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    kept = dict(spec)
    # In v1beta1 these two are not pointers: empty and false are the same as not set.
    for name, unset in (("nodeName", ""), ("allNodes", False)):
        if name in kept and kept[name] == unset:
            del kept[name]
    devices = spec.get("devices")
    if not isinstance(devices, list):
        return kept
    upgraded: list[Any] = []
    for index, device in enumerate(devices):
        at = f"{path}/devices/{index}"
        is_object = isinstance(device, dict)
        upgraded.append(_device(device, at, unknown) if is_object else device)
    kept["devices"] = upgraded
    return kept


def _device(device: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    unknown.extend(f"{path}/{name}" for name in device if name not in ("name", "basic"))
    basic = device.get("basic")
    converted: dict[str, Any] = {}
    if "name" in device:
        converted["name"] = device["name"]
    if not isinstance(basic, dict):
        return converted
    converted |= basic
    capacity = basic.get("capacity")
    if isinstance(capacity, dict):
        converted["capacity"] = {name: _capacity(member) for name, member in capacity.items()}
    return converted


def _capacity(value: Any) -> Any:
    """Wrap a plain amount, as v1alpha3 had it."""
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return {"value": value} if plain else value


_CONVERTERS: Final[dict[str, Callable[[dict[str, Any], str, list[str]], dict[str, Any]]]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
}
