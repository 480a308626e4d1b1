"""Channels and daemons of ComputeDomains: their driver prepares none of which no entry says to which domain it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dra.validation.parameters.judge import recognise
from dra.validation.parameters.nvidia import CLASSES
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dra.objects import DeviceClaim, DeviceClass, OpaqueDeviceConfiguration

# More requests and entries than these are refused by the API server.
_MOST: Final = 32


def asks_for_channels(devices: DeviceClaim) -> bool:
    """Whether a claim names a class of the driver's chart."""
    return any(one.exactly is not None and one.exactly.device_class_name in CLASSES for one in devices.requests)


def channel_lacks(devices: DeviceClaim, path: str, classes: Mapping[str, DeviceClass]) -> Problems:
    """Complain about a request for a channel, or for a daemon, that belongs to no ComputeDomain."""
    for index, request in enumerate(devices.requests[:_MOST]):
        name = request.exactly.device_class_name if request.exactly is not None else ""
        kind = CLASSES.get(name)
        if kind is None:
            continue
        reaching = _of_request(devices, request.name, classes.get(name))
        kinds = [known.name for known in map(recognise, reaching) if known is not None]
        if kind not in kinds:
            said = f"no {kind} says to which ComputeDomain request {request.name!r} belongs"
            message = f"{said}: the driver refuses to prepare it"
            yield Problem("D710", f"{path}/requests/{index}", message)


def _of_request(devices: DeviceClaim, name: str, class_: DeviceClass | None) -> Iterator[OpaqueDeviceConfiguration]:
    """The entries that reach a request: those of its class, and those of the claim."""
    for of_class in class_.spec.config if class_ is not None else ():
        if of_class.opaque is not None:
            yield of_class.opaque
    for config in devices.config[:_MOST]:
        if config.opaque is not None and (not config.requests or name in config.requests):
            yield config.opaque
