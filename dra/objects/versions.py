"""Converts older versions of resource.k8s.io to v1, as the API server does (pkg/apis/resource/v1beta1/conversion.go).

v1beta2 has the fields of v1. v1beta1 has the fields of `exactly` in the request itself, and the fields of a device
under `basic`. v1alpha3 of 1.31 is like v1beta1. The functions work on untyped JSON; `written_pointer` converts a pointer into the v1 object to a pointer into the original object.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.objects.claim import ExactDeviceRequest
from dra.server import OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP: Final = "resource.k8s.io"
CURRENT: Final = f"{GROUP}/v1"
BETA_2: Final = f"{GROUP}/v1beta2"
BETA_1: Final = f"{GROUP}/v1beta1"
ALPHA_3: Final = f"{GROUP}/v1alpha3"

_KINDS: Final = frozenset({"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"})
# The kinds that a server of the newest minor can serve in each version, whether it serves them by default or not.
SERVED: Final = {
    CURRENT: _KINDS | {"DeviceTaintRule"},
    BETA_2: _KINDS | {"DeviceTaintRule"},
    BETA_1: _KINDS,
    ALPHA_3: frozenset({"DeviceTaintRule", "ResourcePoolStatusRequest"}),
}
# The first minor that has a kind in a version, where that minor is later than OLDEST.
_SINCE: Final = {
    (CURRENT, "DeviceTaintRule"): 37,
    (BETA_2, "DeviceTaintRule"): 36,
    (ALPHA_3, "ResourcePoolStatusRequest"): 36,
}
# These fields are under `exactly` of a request in v1, and in the request itself in v1beta1.
_EXACT: Final = ExactDeviceRequest.__struct_encode_fields__
_REQUEST: Final = re.compile(r"((?:/spec){1,2}/devices/requests/\d+)/exactly")
_DEVICE: Final = re.compile(r"(/spec/devices/\d+)(/(?!name$|basic(?:/|$)).*)")


class Upgrade(NamedTuple):
    """An object converted to v1, and pointers to fields of the object that its original version does not have."""

    value: dict[str, Any]
    unknown: tuple[str, ...] = ()


def upgrade(value: dict[str, Any]) -> Upgrade:
    """Convert an object of resource.k8s.io to v1; return any other object unchanged."""
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
    """Return the first supported minor that has a kind in a version, whether it serves the kind by default or not."""
    return _SINCE.get((version, kind), OLDEST)


def written_pointer(pointer: str, version: str, kind: str) -> str:
    """Convert a pointer into the v1 object to a pointer into the original object."""
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
        if not isinstance(request, dict):
            requests.append(request)
            continue
        if "exactly" in request:
            unknown.append(f"{path}/devices/requests/{index}/exactly")
        remaining = {name: value for name, value in request.items() if name != "exactly" and name not in _EXACT}
        exact = {name: request[name] for name in _EXACT if name in request}
        # An empty list counts as set; an empty string or zero does not.
        if any(value is not None and value not in ("", 0) for value in exact.values()):
            remaining["exactly"] = exact
        requests.append(remaining)
    return {**spec, "devices": {**devices, "requests": requests}}


def _template(spec: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    inner = spec.get("spec")
    return {**spec, "spec": _claim(inner, f"{path}/spec", unknown)} if isinstance(inner, dict) else spec


def _slice(spec: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    new_spec = dict(spec)
    # In v1beta1, these two fields are not pointers in Go: "" and false mean that they are not set.
    for name, unset in (("nodeName", ""), ("allNodes", False)):
        if name in new_spec and new_spec[name] == unset:
            del new_spec[name]
    devices = spec.get("devices")
    if not isinstance(devices, list):
        return new_spec
    new_spec["devices"] = []
    for index, device in enumerate(devices):
        if not isinstance(device, dict):
            new_spec["devices"].append(device)
            continue
        unknown.extend(f"{path}/devices/{index}/{name}" for name in device if name not in ("name", "basic"))
        basic = device.get("basic")
        converted = {"name": device["name"]} if "name" in device else {}
        if isinstance(basic, dict):
            converted |= basic
        new_spec["devices"].append(converted)
    return new_spec


_CONVERTERS: Final[dict[str, Callable[[dict[str, Any], str, list[str]], dict[str, Any]]]] = {
    "ResourceClaim": _claim,
    "ResourceClaimTemplate": _template,
    "ResourceSlice": _slice,
}
