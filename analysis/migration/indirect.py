"""Finds workloads that get devices without naming a key.

runtimeClassName, NVIDIA_VISIBLE_DEVICES    the container runtime adds devices of the node
/dev/dri, /dev/kfd                          the pod mounts device files of the node
gpu: {enabled: true, count: 1}, gpus: 1     a chart or a controller makes the request
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FLUX
from analysis.migration.charts import CONSUMER_KINDS
from dra.raw import Object, mapping, text
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.translate import group_kind, paths, resolve_pointer
from webhook.unknown import gives_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import Decision

_RUNTIME: Final = "runtimeClassName"
_ALL: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
# By the beginning of a runtime class, of a variable or of a device file: the drivers of the devices.
_DRIVERS: Final = {
    "nvidia": _ALL[:1],
    "NVIDIA_": _ALL[:1],
    "/dev/nvidia": _ALL[:1],
    "amd": _ALL[1:2],
    "AMD_": _ALL[1:2],
    "/dev/kfd": _ALL[1:2],
    "/dev/dri": _ALL[1:],
}
_VENDORS: Final = ("nvidia", "amd", "intel")
_VENDOR_FIELDS: Final = ("vendor", "type", "gpuVendor", "gpuType")


class IndirectUse(NamedTuple):
    """The place in an object by which its pods get devices, and the possible drivers of these devices."""

    pointer: str
    key: str  # runtimeClassName, the variable, the device file, or the field with a number
    value: str
    drivers: tuple[str, ...]
    is_requested: bool = False  # by a chart or a controller


def indirect_uses(document: Document, state: State) -> Iterator[IndirectUse]:
    """Yield, for each key, the first place by which an object's pods get devices that no container requests."""
    obj = document.placed
    decisions = decide_object(obj, state).decisions
    has_requests = any(decision.dialect for decision in decisions)
    seen: set[str] = set()
    for decision in decisions:
        use = None if decision.dialect or decision.key in seen else _use(obj, decision)
        # A variable or a device file in addition to a request is for the same device.
        if use and use.drivers and (use.is_requested or not has_requests):
            seen.add(use.key)
            yield use


def _use(obj: Object, decision: Decision) -> IndirectUse | None:
    pointer, key = decision.pointer, decision.key
    if gives_devices(key):
        name = decision.amount if key == _RUNTIME else key
        return IndirectUse(pointer, key, name, drivers_of(name))
    is_known = group_kind(obj) in CONSUMER_KINDS or ("/" not in key and group_kind(obj) != FLUX)
    # Ray counts devices, which KubeRay does not request.
    if not is_known or decision.outcome is not Outcome.UNKNOWN or paths(obj) or "/rayStartParams/" in pointer:
        return None
    switches = mapping(resolve_pointer(obj, pointer))
    # With `draEnabled`, Ollama's chart creates a claim.
    if switches.get("enabled") is False or switches.get("draEnabled") is True:
        return None
    described = switches or mapping(resolve_pointer(obj, pointer.rpartition("/")[0]))
    vendors = {text(described.get(field)).lower() for field in _VENDOR_FIELDS}.intersection(_VENDORS)
    drivers = tuple(f"gpu.{vendor}.com" for vendor in vendors) or _ALL
    return IndirectUse(pointer, key, decision.amount, drivers, is_requested=True)


def drivers_of(value: str) -> tuple[str, ...]:
    """Return the drivers of the devices that a runtime class, a variable or a device file adds to a pod; none for any other name."""
    return next((drivers for start, drivers in _DRIVERS.items() if value.startswith(start)), ())
