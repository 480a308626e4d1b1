"""CDI files (Container Device Interface, cncf.io/cdi, version 0.5.0) and device metadata files of prepared claims.

A claim has one CDI file, with a CDI device for each device of each request, because the kubelet gives a container only the requests that it
names. The names of the variables contain the device's name, which is unique on its node, so a container with several claims gets the
variables of all claims:

    DRAWBRIDGE_DEVICE_GPU_0=GPU-8d1c...         the name that programs use: the UUID, the network interface or the list of CPUs
    DRAWBRIDGE_DEVICE_GPU_0_MEMORY=10737418240  the amount that this request may use, in bytes or units; for shares only

Both files are made from the claim's record alone, so they keep what the claim was given, whatever the inventory becomes.

The driver's `visibleDevices` variable lists the UUIDs of one request, so only one request of a container can have this variable.

Each request also has a metadata file as in KEP-5304 (k8s.io/dynamic-resource-allocation/api/metadata), at a path that the author of a pod
can derive from the manifest:

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/CLAIM/REQUEST/DRIVER-metadata.json
    /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/ENTRY/REQUEST/DRIVER-metadata.json

For a claim that was created from a template, ENTRY is its name in `spec.resourceClaims`. The file has the object once for each API version,
the newest version first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dra.wire import builtins, encode
from node.messages import PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.checkpoint import HeldDevice, Prepared

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
VERSION = "0.5.0"
PREFIX = "DRAWBRIDGE_DEVICE_"
_INVALID_IN_VARIABLE = re.compile(r"[^A-Z0-9]+")
_SharesByDevice = dict[tuple[str, str], list["HeldDevice"]]  # the shares by request and device


def file_name(driver: str, uid: str) -> str:
    return f"{_prefix(driver)}{uid}.json"


def is_ours(driver: str, name: str) -> bool:
    """Report whether a file was written by this driver, including unfinished files."""
    return name.startswith(_prefix(driver)) and name.endswith((".json", ".json.new"))


def uid_of(driver: str, name: str) -> str:
    """Return the UID of the claim that a file is for; "" for an unfinished file."""
    return name.removeprefix(_prefix(driver)).removesuffix(".json") if name.endswith(".json") else ""


def spec_of(record: Prepared, driver: str, folder: str) -> bytes:
    """Encode the CDI file of a claim. `folder`, on the host, has the metadata files, which are mounted into the claim's containers."""
    shares_by_device = _shares_by_device(record)
    claim_path = f"resourceclaimtemplates/{record.entry}" if record.entry else f"resourceclaims/{record.name}"
    mounts = {
        request_name: {
            "hostPath": f"{folder}/{metadata_name(record.uid, number)}",
            "containerPath": f"{FOLDER}/{claim_path}/{request_name}/{driver}-metadata.json",
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
        for number, request_name in enumerate(_request_names(record))
    }
    devices: list[dict[str, Any]] = []
    for number, ((request, device), shares) in enumerate(shares_by_device.items()):
        first = shares[0]
        offer = first.access
        name = PREFIX + variable(device)
        variables = [f"{name}={first.cpus or offer.value}"]
        if first.share_id is not None:
            for capacity in sorted(first.consumed):
                nano = sum(share.consumed[capacity].nano for share in shares)
                variables.append(f"{name}_{variable(capacity)}={nano // 10**9}")
        if first.given is not None and first.given.visible:
            visible = [
                others[0].access for (share_request, _), others in shares_by_device.items() if share_request == request
            ]
            uuids = ",".join(other.value for other in visible if other.is_visible)
            variables.append(f"{first.given.visible}={uuids}")
        edits: dict[str, Any] = {"env": variables}
        if offer.files:
            paths = [path.partition(":") for path in offer.files]  # `/dev/a:/dev/b`: the host's a appears as b
            edits["deviceNodes"] = [
                {"path": inside or host, "hostPath": host, "permissions": "rw"} for host, _, inside in paths
            ]
        # Only the first device of a request mounts the metadata file, because a container gets all devices of a request.
        mount = mounts.pop(request, None)
        if mount is not None:
            edits["mounts"] = [mount]
        devices.append({"name": f"{record.uid}-{number}", "containerEdits": edits})
    return encode({"cdiVersion": VERSION, "kind": kind_of(driver), "devices": devices})


def answer_of(record: Prepared, driver: str) -> PreparedClaim:
    numbers = {key: number for number, key in enumerate(_shares_by_device(record))}
    devices = [
        PreparedDevice(
            requests=(device.request_name,),
            pool=record.pool,
            device=device.device,
            cdi=(f"{kind_of(driver)}={record.uid}-{numbers[device.request_name, device.device]}",),
            share=device.share_id,
        )
        for device in record.devices
    ]
    return PreparedClaim(devices=tuple(devices))


def _prefix(driver: str) -> str:
    # Driver names have no underscore, so a driver never takes another driver's files for its own.
    return f"drawbridge_{driver}_"


def kind_of(driver: str) -> str:
    return f"{driver}/claim"


def _shares_by_device(record: Prepared) -> _SharesByDevice:
    """Group a claim's devices by request and device: several shares of one device add up."""
    shares: _SharesByDevice = {}
    for device in record.devices:
        shares.setdefault((device.request_name, device.device), []).append(device)
    return shares


def variable(text: str) -> str:
    """Turn a device or capacity name into part of a variable name."""
    return _INVALID_IN_VARIABLE.sub("_", text.upper())


def metadata_of(record: Prepared, driver: str) -> dict[str, bytes]:
    """Encode the metadata file of each request, by its file name on the host."""
    files: dict[str, bytes] = {}
    for number, request in enumerate(_request_names(record)):
        prepared_devices = [device for device in record.devices if device.request_name == request]
        devices: list[dict[str, Any]] = []
        # Several shares of a device are one device.
        for name, held in {device.device: device for device in prepared_devices}.items():
            entry: dict[str, Any] = {"driver": driver, "pool": record.pool, "name": name}
            if held.given is not None and held.given.device.attributes:
                entry["attributes"] = builtins(held.given.device.attributes)
            interface = held.access.interface
            if interface:
                entry["networkData"] = {"interfaceName": interface}
            devices.append(entry)
        body: dict[str, Any] = {
            "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid, "generation": 1},
            "requests": [{"name": prepared_devices[0].request, "devices": devices}],
        }
        if record.entry:
            body["podClaimName"] = record.entry
        versions = [encode({"apiVersion": version, "kind": "DeviceMetadata"} | body) for version in _VERSIONS]
        files[metadata_name(record.uid, number)] = b"".join(version + b"\n" for version in versions)
    return files


def metadata_name(uid: str, number: int) -> str:
    """Return the file name for the request with this number. UIDs have no underscore."""
    return f"{uid}_{number}.json"


def is_metadata_of(name: str, uids: Iterable[str]) -> bool:
    """Report whether a finished metadata file belongs to one of these claims."""
    return name.endswith(".json") and name.partition("_")[0] in set(uids)


def _request_names(record: Prepared) -> dict[str, None]:
    return dict.fromkeys(device.request_name for device in record.devices)
