"""The files in which a container reads about its devices: one for each request, in the form of KEP-5304 (k8s.io/dynamic-resource-allocation/api/metadata).

The file stands where a program finds it with nothing but its pod's manifest at hand:

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/CLAIM/REQUEST/DRIVER-metadata.json
    /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/ENTRY/REQUEST/DRIVER-metadata.json

ENTRY is the pod's own name for a claim that was made from a template. The content is the same object once for each version, the newest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.wire import builtins, encode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from node.checkpoint import Prepared
    from node.inventory import Machine

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")


def metadata_of(record: Prepared, machine: Machine) -> dict[str, bytes]:
    """Write what is told of each request, by the name of its file on the host."""
    known = machine.by_name
    told: dict[str, bytes] = {}
    for number, request in enumerate(_asked(record)):
        held = [one for one in record.devices if one.asked == request]
        devices: list[dict[str, Any]] = []
        for name in dict.fromkeys(one.device for one in held):  # two shares of a device are one device
            one: dict[str, Any] = {"driver": machine.driver, "pool": record.pool, "name": name}
            device = known.get(name)
            if device is not None and device.attributes:
                one["attributes"] = builtins(device.attributes)
            interface = machine.interface_of(name)
            if interface:
                one["networkData"] = {"interfaceName": interface}
            devices.append(one)
        body: dict[str, Any] = {
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid, "generation": 1},
            "requests": [{"name": held[0].request, "devices": devices}],
        }
        if record.entry:
            body["podClaimName"] = record.entry
        versions = [encode({"apiVersion": version, "kind": "DeviceMetadata"} | body) for version in _VERSIONS]
        told[metadata_name(record.uid, number)] = b"".join(version + b"\n" for version in versions)
    return told


def mounts_of(record: Prepared, driver: str, folder: str) -> dict[str, dict[str, Any]]:
    """Say by request which file a container finds where; `folder` is the host's."""
    mounts: dict[str, dict[str, Any]] = {}
    whose = f"resourceclaimtemplates/{record.entry}" if record.entry else f"resourceclaims/{record.name}"
    for number, request in enumerate(_asked(record)):
        mounts[request] = {
            "hostPath": f"{folder}/{metadata_name(record.uid, number)}",
            "containerPath": f"{FOLDER}/{whose}/{request}/{driver}-metadata.json",
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
    return mounts


def metadata_name(uid: str, number: int) -> str:
    """Name the file of a claim's request. Uids have no underscore."""
    return f"{uid}_{number}.json"


def is_metadata_of(name: str, uids: Iterable[str]) -> bool:
    """Say whether a file belongs to one of these claims, and is finished."""
    return name.endswith(".json") and name.partition("_")[0] in set(uids)


def _asked(record: Prepared) -> dict[str, None]:
    return dict.fromkeys(held.asked for held in record.devices)
