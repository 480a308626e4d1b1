"""Finds workloads that get devices without naming a key.

runtimeClassName, NVIDIA_VISIBLE_DEVICES    the container runtime adds devices of the node
/dev/dri, /dev/kfd                          the pod mounts device files of the node
gpu: {enabled: true, count: 1}, gpus: 1     a chart or a controller makes the request
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.check import finding_of
from analysis.gitops import FLUX
from analysis.migration.charts import CONSUMER_KINDS
from dra.raw import Object, mapping, text
from webhook.admission import decide_object
from webhook.dialects import Outcome
from webhook.translate import group_kind, paths, resolve_pointer

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
    """The place in an object that gives devices to its pods, and the drivers that the devices may belong to."""

    pointer: str
    key: str  # runtimeClassName, the variable, the device file, or the field with a number
    value: str
    drivers: tuple[str, ...]
    is_requested: bool = False  # by a chart or a controller


def indirect_uses(document: Document, state: State) -> Iterator[IndirectUse]:
    """Yield the first place of each key by which the pods of an object get devices that no container requests."""
    obj = document.placed
    decisions = decide_object(obj, state).decisions
    seen: set[str] = set()
    has_requests = any(decision.dialect for decision in decisions)
    for use in _places(obj, [decision for decision in decisions if not decision.dialect]):
        # A variable or a device file beside a request is of the same device.
        if use.drivers and use.key not in seen and (use.is_requested or not has_requests):
            seen.add(use.key)
            yield use


def _places(obj: Object, decisions: list[Decision]) -> Iterator[IndirectUse]:
    is_known = group_kind(obj) in CONSUMER_KINDS
    for decision in decisions:
        pointer, key = finding_of(obj, decision, "D211").path, decision.key
        if key == _RUNTIME:
            pod = resolve_pointer(obj, pointer.partition("/containers/")[0])
            name = text(resolve_pointer(obj, pointer)) or text(mapping(pod).get(_RUNTIME))
            yield IndirectUse(pointer, key, name, drivers_of(name))
        elif key.endswith("_VISIBLE_DEVICES") or key.startswith("/dev/"):
            yield IndirectUse(pointer, key, key, drivers_of(key))
        elif (
            (is_known or "/" not in key)
            and decision.outcome is Outcome.UNKNOWN
            and not paths(obj)
            and group_kind(obj) != FLUX
        ):
            value = resolve_pointer(obj, pointer)
            switches = mapping(value)
            # With `draEnabled`, the chart of Ollama makes a claim.
            if value is None or switches.get("enabled") is False or switches.get("draEnabled") is True:
                continue
            # Ray's own count of devices, which KubeRay does not request.
            if "/rayStartParams/" in pointer:
                continue
            described = mapping(value) or mapping(resolve_pointer(obj, pointer.rpartition("/")[0]))
            vendors = {text(described.get(field)).lower() for field in _VENDOR_FIELDS}.intersection(_VENDORS)
            drivers = tuple(f"gpu.{vendor}.com" for vendor in vendors) or _ALL
            amount = "" if isinstance(value, dict | list) else str(value)
            yield IndirectUse(pointer, key, amount, drivers, is_requested=True)


def drivers_of(value: str) -> tuple[str, ...]:
    """Return the drivers of the devices that a runtime class, a variable or a device file gives; none of another one."""
    return next((drivers for start, drivers in _DRIVERS.items() if value.startswith(start)), ())
