"""The Container Device Interface (cncf.io/cdi, version 0.5.0): what containers see of their devices.

A CDI file a claim, with a CDI device for each device and request, because the kubelet gives a container only the requests that it names.
The variables carry the device's name, which is unique on its node, so they add up where a container has several claims:

    DRAWBRIDGE_DEVICE_GPU_0=GPU-8d1c...         the name that programs use: the uuid, the network interface, the list of CPUs
    DRAWBRIDGE_DEVICE_GPU_0_MEMORY=10737418240  how much of it this request may use, in bytes or pieces; for shares only

The driver's `visibleDevices` variable gets the uuids of one request, and only one request of a container can have it.

Each request also has a metadata file in the form of KEP-5304 (k8s.io/dynamic-resource-allocation/api/metadata), at a path that follows
from the pod's manifest:

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/CLAIM/REQUEST/DRIVER-metadata.json
    /var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/ENTRY/REQUEST/DRIVER-metadata.json

ENTRY is the pod's own name for a claim that was made from a template. The file has the same object once for each version, the newest first.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dra.wire import builtins, encode
from node.inventory import Offer
from node.messages import PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.checkpoint import HeldDevice, Prepared
    from node.inventory import Machine

FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
_VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
NOTHING = Offer("")  # of a device that the machine has no more
VERSION = "0.5.0"
PREFIX = "DRAWBRIDGE_DEVICE_"
_NOT_OF_VARIABLES = re.compile(r"[^A-Z0-9]+")
Given = dict[tuple[str, str], list["HeldDevice"]]


def file_name(driver: str, uid: str) -> str:
    return f"{_prefix(driver)}{uid}.json"


def is_ours(driver: str, name: str) -> bool:
    """Say whether a file is one of this driver's, finished or not."""
    return name.startswith(_prefix(driver)) and name.endswith((".json", ".json.new"))


def uid_of(driver: str, name: str) -> str:
    """Say whose claim's a file is; "" if it was never finished."""
    return name.removeprefix(_prefix(driver)).removesuffix(".json") if name.endswith(".json") else ""


def spec_of(record: Prepared, machine: Machine, folder: str) -> bytes:
    """Write the file of a claim. In `folder` stands what its containers can read about their devices."""
    given = _given(record)
    whose = f"resourceclaimtemplates/{record.entry}" if record.entry else f"resourceclaims/{record.name}"
    mounts = {
        asked: {
            "hostPath": f"{folder}/{metadata_name(record.uid, number)}",
            "containerPath": f"{FOLDER}/{whose}/{asked}/{machine.driver}-metadata.json",
            "options": ["ro", "nosuid", "nodev", "bind"],
        }
        for number, asked in enumerate(_asked(record))
    }
    devices: list[dict[str, Any]] = []
    for number, ((request, device), shares) in enumerate(given.items()):
        first = shares[0]
        offer = machine.offers.get(device, NOTHING)
        # What the device is called, and how much of each capacity the request may use.
        name = PREFIX + variable(device)
        variables = [f"{name}={first.cpus or offer.value}"]
        if first.share_id is not None:
            for capacity in sorted(first.consumed):
                nano = sum(one.consumed[capacity].nano for one in shares)
                variables.append(f"{name}_{variable(capacity)}={nano // 10**9}")
        if machine.visible_devices:
            offers = [machine.offers.get(other, NOTHING) for of, other in given if of == request]
            visible = ",".join(one.value for one in offers if one.listed)
            if visible:
                variables.append(f"{machine.visible_devices}={visible}")
        edits: dict[str, Any] = {"env": variables}
        if offer.files:
            paths = [path.partition(":") for path in offer.files]  # `/dev/a:/dev/b` shows the host's a as b
            edits["deviceNodes"] = [
                {"path": inside or host, "hostPath": host, "permissions": "rw"} for host, _, inside in paths
            ]
        # A request's first device brings the file: a container is given all of them.
        mount = mounts.pop(request, None)
        if mount is not None:
            edits["mounts"] = [mount]
        devices.append({"name": f"{record.uid}-{number}", "containerEdits": edits})
    return encode({"cdiVersion": VERSION, "kind": kind_of(machine.driver), "devices": devices})


def answer_of(record: Prepared, driver: str) -> PreparedClaim:
    numbers = {key: number for number, key in enumerate(_given(record))}
    devices = [
        PreparedDevice(
            requests=(held.asked,),
            pool=record.pool,
            device=held.device,
            cdi=(f"{kind_of(driver)}={record.uid}-{numbers[held.asked, held.device]}",),
            share=held.share_id,
        )
        for held in record.devices
    ]
    return PreparedClaim(devices=tuple(devices))


def _prefix(driver: str) -> str:
    # No driver's name has an underscore, so no name of a driver begins another's files.
    return f"drawbridge_{driver}_"


def kind_of(driver: str) -> str:
    return f"{driver}/claim"


def _given(record: Prepared) -> Given:
    """Sort what a claim has by request and device: two shares of one device are more of it."""
    given: Given = {}
    for held in record.devices:
        shares = given.setdefault((held.asked, held.device), [])
        shares.append(held)
    return given


def variable(text: str) -> str:
    """Make a part of a variable's name of a name."""
    return _NOT_OF_VARIABLES.sub("_", text.upper())


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


def metadata_name(uid: str, number: int) -> str:
    """Name the file of a claim's request. Uids have no underscore."""
    return f"{uid}_{number}.json"


def is_metadata_of(name: str, uids: Iterable[str]) -> bool:
    """Say whether a file belongs to one of these claims, and is finished."""
    return name.endswith(".json") and name.partition("_")[0] in set(uids)


def _asked(record: Prepared) -> dict[str, None]:
    return dict.fromkeys(held.asked for held in record.devices)
